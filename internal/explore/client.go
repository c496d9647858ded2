package explore

import (
	"fmt"
	"slices"
	"strconv"

	"example.com/redlock/internal/answer"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// maxClients is how many clients a world can have.
const maxClients = 4

// phase is where a client stands.
type phase uint8

const (
	idle phase = iota
	waiting
	holding
	dead // its process crashed
)

// client is somebody that waits for the name and holds it.
type client struct {
	index    int
	about    Client
	turn     int // the present one, or the next
	phase    phase
	proposer core.Proposer
	waiter   *core.Waiter
	// lease is what it holds, with renewal under way.
	lease   core.Holding
	renewal *core.Renewal
	token   uint64
	freed   bool // an operator has freed what it held
	// above is the largest token of leases that were over when it began to wait.
	above uint64
	// before are the clients that stood in line everywhere when this one began to wait,
	// and for which turn.
	before [maxClients]int8
	lanes  []lane
}

// lane is what a client has under way at one node: one operation at a time.
type lane struct {
	busy bool
	at   envelope // the operation under way, sent at
	sent core.Instant
	next queue[envelope]
}

func newClient(i int, about Client, nodes int) *client {
	return &client{index: i, about: about, lanes: make([]lane, nodes), before: [maxClients]int8{-1, -1, -1, -1}}
}

func (c *client) clone() *client {
	d := *c
	if c.waiter != nil {
		d.waiter = c.waiter.Clone()
	}
	d.lease = c.lease.Clone()
	if c.renewal != nil {
		d.renewal = c.renewal.Clone()
	}
	d.lanes = slices.Clone(c.lanes)
	return &d
}

func (c *client) append(b []byte, now core.Instant) []byte {
	for _, turn := range c.before {
		b = append(b, byte(turn))
	}
	b = appendNumbers(appendFlag(b, c.freed), c.above, uint64(c.phase), uint64(c.turn), c.proposer.Last(), c.token)
	if c.phase == waiting {
		b = c.waiter.AppendState(b, now)
	}
	if c.phase == holding {
		b = c.lease.AppendState(b, now)
		b = strconv.AppendInt(b, int64(c.waiter.Attempt()), 10)
		if c.renewal != nil {
			b = c.renewal.AppendState(b)
		}
	}
	for _, l := range c.lanes {
		b = appendFlag(b, l.busy)
		if l.busy {
			b = appendEnvelopes(b, queue[envelope]{l.at})
			b = strconv.AppendInt(b, int64(now.Sub(l.sent)), 10)
		}
		b = appendEnvelopes(b, l.next)
	}
	return b
}

// id names an attempt of the client. All attempts of one turn belong to one waiter.
func (c *client) id(turn, attempt int) string {
	return fmt.Sprintf("%02x%02x%028x", c.index, turn, attempt)
}

func (c *client) waiterID(turn int) string { return fmt.Sprintf("%02x%030x", c.index+0xa0, turn) }

// whose takes an id apart; false if it is not one of the client's.
func (c *client) whose(id string) (turn, attempt int, mine bool) {
	if len(id) != 32 {
		return 0, 0, false
	}
	index, err := strconv.ParseInt(id[:2], 16, 32)
	t, terr := strconv.ParseInt(id[2:4], 16, 32)
	a, aerr := strconv.ParseInt(id[4:], 16, 64)
	return int(t), int(a), err == nil && terr == nil && aerr == nil && int(index) == c.index
}

func (c *client) place(i int, beat uint64) node.Place {
	return node.Place{
		Waiter: c.waiterID(c.turn), Client: processID(c.about.Process), Ticket: c.waiter.TicketAt(i), Beat: beat,
	}
}

// begin has the client wait.
func (s *state) begin(c *client) {
	c.phase, c.token, c.renewal, c.freed = waiting, 0, nil, false
	w, effects := core.NewWaiter(core.RoundConfig{
		Nodes: s.world.Nodes, Quorum: s.quorum(), TTL: ttl, Drift: drift,
	}, times, s.instant())
	c.waiter, c.above = w, s.least(c)
	for i, d := range s.clients {
		c.before[i] = -1
		if s.world.Fair && i != c.index && s.standsEverywhere(d) {
			c.before[i] = int8(d.turn)
		}
	}
	s.apply(c, effects)
}

// standsEverywhere reports whether all nodes have the client in line with the ticket
// that was agreed on.
func (s *state) standsEverywhere(c *client) bool {
	if c.phase != waiting || c.waiter.Ticket() == 0 {
		return false
	}
	for _, n := range s.nodes {
		if n.Score(node.Keyspace{}.Line(name), c.waiterID(c.turn)) != c.waiter.Ticket() {
			return false
		}
	}
	return true
}

// apply carries out what the waiter wants, and takes in that it has won.
func (s *state) apply(c *client, effects []core.LineEffect) {
	for _, e := range slices.Clone(effects) {
		op := node.Op{Name: name, ID: c.id(c.turn, e.Attempt), Mode: c.about.Mode}
		switch e.Kind {
		case core.Ask:
			op.Kind, op.TTL, op.Proposal = node.Wait, ttl.Milliseconds(), c.proposer.Last()+1
			op.Place = c.place(e.Node, e.Beat)
		case core.GiveBack:
			op.Kind, op.Proposal, op.NewID = node.Release, c.proposer.Last()+1, c.id(c.turn, c.waiter.Attempt())
			op.Place, op.Rest = c.place(e.Node, e.Beat), e.Rest.Milliseconds()
		case core.LiftTo:
			op.Kind, op.Stored, op.Token = node.Raise, e.Stored, e.Token
		}
		s.send(c, e.Node, envelope{op: op, attempt: e.Attempt, turn: c.turn, beat: e.Beat})
	}
	if c.phase == waiting && c.waiter.Won() {
		s.win(c)
	}
}

// win makes what the waiter has won a lease, which is extended at once: it may have
// been handed over for a short time.
func (s *state) win(c *client) {
	lease := c.waiter.Round().Holding()
	c.phase, c.lease, c.token = holding, lease.Clone(), c.waiter.Round().Token()
	if s.world.Renew {
		renewal, effects := core.NewRenewal(s.instant(), s.world.Nodes, ttl)
		c.renewal = renewal
		s.renew(c, effects)
	}
}

func (s *state) renew(c *client, effects []core.RenewalEffect) {
	for _, e := range slices.Clone(effects) {
		op := node.Op{Name: name, ID: c.id(c.turn, c.waiter.Attempt()), Mode: c.about.Mode, TTL: ttl.Milliseconds()}
		switch e.Kind {
		case core.Extend:
			op.Kind = node.Extend
		case core.JoinNode:
			op.Kind, op.Token = node.Join, c.token
		default:
			continue
		}
		s.send(c, e.Node, envelope{op: op, attempt: c.waiter.Attempt(), turn: c.turn})
	}
}

// leave ends a wait, or a lease: what the client may have anywhere is released, and it
// leaves the line.
func (s *state) leave(c *client) {
	attempt := c.waiter.Attempt()
	op := node.Op{
		Kind: node.Release, Name: name, ID: c.id(c.turn, attempt), Proposal: c.proposer.Last() + 1,
		Place: node.Place{Waiter: c.waiterID(c.turn)},
	}
	for i := range c.lanes {
		s.send(c, i, envelope{op: op, attempt: attempt, turn: c.turn})
	}
	s.end(c)
}

// end ends the client's turn.
func (s *state) end(c *client) {
	if c.phase == holding {
		s.noteOver(c)
	}
	c.phase, c.waiter, c.renewal, c.lease = idle, nil, nil, core.Holding{}
	c.turn++
}

// send has an operation carried out at node i, after what is under way there.
func (s *state) send(c *client, i int, e envelope) {
	l := &c.lanes[i]
	if l.busy {
		l.next = l.next.push(e)
		return
	}
	l.busy, l.at, l.sent = true, e, s.instant()
	s.requests[c.index][i] = s.requests[c.index][i].push(e)
	if e.beat > 0 && c.phase == waiting && e.turn == c.turn {
		c.waiter.Step(s.instant(), core.LineEvent{Kind: core.Left, Node: i, Beat: e.beat, Sent: s.instant()})
	}
}

// least is what the client's token has to be above, as things are.
func (s *state) least(c *client) uint64 {
	if c.about.Mode == node.Shared {
		return s.over.writer
	}
	return max(s.over.writer, s.over.reader)
}

// noteOver notes the token of a lease that is over: those that begin later have larger
// ones.
func (s *state) noteOver(c *client) {
	if c.about.Mode == node.Shared {
		s.over.reader = max(s.over.reader, c.token)
	} else {
		s.over.writer = max(s.over.writer, c.token)
	}
}

// proceed sends what waited for the operation that is over at node i. What only takes
// is not sent any more for what is over.
func (s *state) proceed(c *client, i int) {
	l := &c.lanes[i]
	l.busy = false
	for !l.busy && len(l.next) > 0 {
		e := l.next[0]
		l.next = l.next[1:]
		stale := e.turn != c.turn || c.phase == holding && e.op.Kind == node.Wait
		if stale && e.op.Kind != node.Release {
			continue
		}
		s.send(c, i, e)
	}
}

// receive takes in the answer of node i.
func (s *state) receive(c *client, i int, e envelope) {
	l := &c.lanes[i]
	current := l.busy && l.at.beat == e.beat && l.at.op == e.op
	if e.answer.Token > 0 {
		c.proposer.Saw(e.answer.Token)
	}
	granted := e.op.Kind == node.Wait && e.answer.Code == node.Granted
	over := e.turn != c.turn || c.phase == idle
	switch {
	case c.phase == dead:
		return
	case over && granted && !current, !over && c.phase == holding && granted && e.attempt != c.waiter.Attempt():
		s.refuse(c, i, e.op.ID, e.op.Place.Waiter) // late, and for nobody
	case over:
	case c.phase == waiting:
		s.apply(c, c.waiter.Step(s.instant(), answer.Line(e.op, e.answer, i, e.attempt, c.own)))
	case granted:
		c.lease.Join(i, 0)
	case current:
		s.renewed(c, i, e, l.sent)
	}
	if current {
		s.proceed(c, i)
	}
}

// own tells whether an id is an attempt of the client's present turn, and which.
func (c *client) own(id string) (attempt int, own bool) {
	turn, attempt, mine := c.whose(id)
	return attempt, mine && turn == c.turn
}

// renewed takes in the answer to an extension or a join.
func (s *state) renewed(c *client, i int, e envelope, sent core.Instant) {
	if e.op.Kind != node.Extend && e.op.Kind != node.Join {
		return
	}
	ev := answer.Renewal(e.op, e.answer, i, sent)
	s.renew(c, c.renewal.Step(s.instant(), &c.lease, ev))
}

// unheard takes in that node i has not answered in time.
func (s *state) unheard(c *client, i int) {
	e := c.lanes[i].at
	switch {
	case e.turn != c.turn || c.phase == idle || c.phase == dead:
	case c.phase == waiting:
		s.apply(c, c.waiter.Step(s.instant(), answer.NotInLine(e.op, i, e.attempt)))
	case e.op.Kind == node.Extend || e.op.Kind == node.Join:
		s.renew(c, c.renewal.Step(s.instant(), &c.lease, answer.NoRenewal(e.op.Kind, i)))
	}
	s.proceed(c, i)
}

// pushed takes in that node i has handed the name over.
func (s *state) pushed(process, i int, p node.Push) {
	for index := range s.clients {
		turn, attempt, mine := s.clients[index].whose(p.ID)
		if !mine || s.clients[index].about.Process != process || s.clients[index].phase == dead {
			continue
		}
		c := s.client(index)
		c.proposer.Saw(p.Token)
		switch {
		case c.phase == waiting && turn == c.turn:
			s.apply(c, c.waiter.Step(s.instant(), answer.Pushed(p, i, attempt)))
		case c.phase == holding && turn == c.turn && attempt == c.waiter.Attempt():
			c.lease.Join(i, 0)
		default:
			s.refuse(c, i, p.ID, p.Waiter)
		}
	}
}

// refuse gives back what came for a wait that is over.
func (s *state) refuse(c *client, i int, id, waiter string) {
	s.send(c, i, envelope{turn: -1, op: node.Op{
		Kind: node.Release, Name: name, ID: id, Proposal: c.proposer.Last() + 1, Place: node.Place{Waiter: waiter},
	}})
}
