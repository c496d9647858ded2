package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
)

// A walk looks at nothing but tokens, for which time does not matter: any
// lease may be gone from any node at any moment, any message may arrive at any
// later moment, or twice, or find its sender gone on; any node may forget, and
// then count again (walkloss.go). Each step is one of the things that could happen
// next. It finds in milliseconds what takes whole runs minutes to meet.
type walk struct {
	rnd      *rand.Rand
	now      core.Instant // counts steps
	quorum   int
	conf     node.Conf
	nodes    []*nodemodel.Node
	backups  []*nodemodel.Node // what nodes may come back with
	guards   []string          // that nodes have shown last, to all clients
	absences []absence
	// forgetful walks have nodes lose what they know. In them a client never reaches
	// the node that it is blind for, so that quorums share few nodes; -1 for none.
	forgetful bool
	blind     []int
	proposers []core.Proposer
	current   []*walker // by client
	messages  []message
	history   []*Hold
	steps     []string
}

// walker is an attempt.
type walker struct {
	client int
	id     string
	begun  core.Instant
	round  *core.Round
	// waits is what each node owes an answer to; over tells that it is held, or
	// lost.
	waits []node.Kind
	over  bool
}

// message is an operation on its way to a node.
type message struct {
	from  *walker
	node  int
	guard string
	op    node.Op
}

// walkSteps is how long a walk is.
const walkSteps = 200

// Walk makes one walk. It returns how many tokens were granted, and what must not
// happen with the steps to it.
func Walk(seed uint64) (granted int, steps []string, err error) {
	rnd := stream(seed, streamConfig)
	n, forgetful := pick(rnd, 2, 3, 3, 4, 5, 5), rnd.IntN(2) == 0
	if forgetful {
		n = pick(rnd, n, 3)
	}
	w := &walk{
		rnd: rnd, quorum: core.Majority(n), now: 1, forgetful: forgetful, absences: make([]absence, n),
		proposers: make([]core.Proposer, 2+rnd.IntN(2)),
	}
	w.current = make([]*walker, len(w.proposers))
	for range w.current {
		blind := -1
		if w.forgetful {
			blind = rnd.IntN(n+1) - 1
		}
		w.blind = append(w.blind, blind)
	}
	w.conf = Config{Nodes: n, Quorum: w.quorum, MaxTTL: time.Hour}.conf()
	for i := range n {
		model := nodemodel.New(fmt.Sprint("n", i))
		w.guards = append(w.guards, model.Hello(node.Hello{Conf: w.conf, Intent: node.Declare}, epoch).Guard)
		w.nodes = append(w.nodes, model)
		w.backups = append(w.backups, model.Clone())
	}
	for range walkSteps {
		w.now++
		w.step()
		if err := CheckTokens(w.history, false); err != nil {
			return len(w.history), w.steps, err
		}
	}
	return len(w.history), nil, nil
}

func (w *walk) step() {
	switch what := w.rnd.IntN(20); {
	case what == 0 && w.forgetful:
		for i := range w.nodes {
			w.expire(i)
		}
	case what <= 1:
		w.expire(w.rnd.IntN(len(w.nodes)))
	case what == 2 && w.forgetful:
		w.beginSwiftly(w.rnd.IntN(len(w.current)))
	case what <= 3:
		w.begin(w.rnd.IntN(len(w.current)))
	case what == 4 && w.forgetful:
		w.meddle(w.victim())
	case what <= 6 && w.forgetful && w.readmit():
	case len(w.messages) > 0:
		w.move(w.rnd.IntN(len(w.messages)))
	}
}

// expire ends the lease on a node.
func (w *walk) expire(i int) {
	w.notef("n%d forgets the lease", i)
	w.nodes[i].Delete(node.Keyspace{}.Lease(lockNames[0]))
}

// beginSwiftly gives a client a new attempt, and lets most of what it sends arrive:
// walks in which nodes forget need many leases, before and after.
func (w *walk) beginSwiftly(client int) {
	before := len(w.messages)
	w.begin(client)
	for range 2 * len(w.nodes) {
		if len(w.messages) > before {
			w.move(len(w.messages) - 1)
		}
	}
}

// begin gives a client a new attempt. One that is under way is given up.
func (w *walk) begin(client int) {
	w.giveUp(client)
	n := len(w.nodes)
	a := &walker{
		client: client, id: fmt.Sprintf("%032x", w.now), begun: w.now, waits: make([]node.Kind, n),
		round: core.NewRound(core.RoundConfig{Nodes: n, Quorum: w.quorum, TTL: time.Hour}),
	}
	w.current[client] = a
	if w.forgetful && w.rnd.IntN(2) == 0 {
		w.proposers[client] = core.Proposer{} // of a process that has seen nothing
	}
	proposal := w.proposers[client].Next(0)
	w.notef("c%d begins %s and proposes %d", client, a.id[28:], proposal)
	for i := range n {
		w.send(a, i, node.Op{Kind: node.Acquire, TTL: time.Hour.Milliseconds(), Proposal: proposal})
	}
}

// giveUp ends what the client has under way.
func (w *walk) giveUp(client int) {
	a := w.current[client]
	if a == nil {
		return
	}
	w.current[client] = nil
	w.apply(a, a.round.GiveUp())
	for i := range a.waits {
		if a.waits[i] == 0 {
			w.send(a, i, node.Op{Kind: node.Release})
		}
	}
}

func (w *walk) send(a *walker, i int, op node.Op) {
	op.ID, op.Name = a.id, lockNames[0]
	a.waits[i] = op.Kind
	w.messages = append(w.messages, message{a, i, w.guards[i], op})
}

// move has a message arrive, with or without the answer coming back, or has
// its sender wait no longer.
func (w *walk) move(i int) {
	m := w.messages[i]
	waits := m.from.waits[m.node] == m.op.Kind
	blind := m.node == w.blind[m.from.client]
	if blind {
		w.messages = slices.Delete(w.messages, i, i+1)
	}
	if waits && (blind || w.rnd.IntN(10) == 0) {
		w.notef("%s takes n%d for silent", m.from.id[28:], m.node)
		w.fell(m)
		return
	}
	if blind {
		return
	}
	if w.rnd.IntN(5) != 0 { // else it arrives once more, later
		w.messages = slices.Delete(w.messages, i, i+1)
	}
	reply := w.nodes[m.node].Apply(&node.Call{
		Guard: m.guard, MaxTTL: time.Hour.Milliseconds(), Ops: []node.Op{m.op},
	}, epoch)
	ans := reply.Answers[0]
	w.notef("n%d answers %s's %s: %v %d", m.node, m.from.id[28:], kindNames[m.op.Kind], ans.Code, ans.Token)
	if waits {
		w.answered(m, ans)
	}
}

// fell takes in a silence.
func (w *walk) fell(m message) {
	m.from.waits[m.node] = 0
	switch m.op.Kind {
	case node.Acquire:
		w.tell(m.from, core.Event{Kind: core.Silent, Node: m.node})
	case node.Raise:
		w.tell(m.from, core.Event{Kind: core.RaiseFailed, Node: m.node})
	}
}

func (w *walk) answered(m message, ans node.Answer) {
	m.from.waits[m.node] = 0
	switch m.op.Kind {
	case node.Acquire:
		w.proposers[m.from.client].Saw(ans.Token)
		ev := core.Event{Kind: core.Refused, Node: m.node}
		switch ans.Code {
		case node.Granted:
			ev = core.Event{Kind: core.Granted, Node: m.node, Sent: w.now, Token: ans.Token}
		case node.NoGuard:
			ev.Kind = core.Unsent
		}
		w.tell(m.from, ev)
	case node.Raise:
		ev := core.Event{Kind: core.RaiseFailed, Node: m.node}
		if ans.Code == node.Done {
			ev.Kind = core.Raised
		}
		w.tell(m.from, ev)
	}
}

func (w *walk) tell(a *walker, ev core.Event) {
	if a.round.Verdict() != core.Won {
		w.apply(a, a.round.Step(w.now, ev))
	}
}

// apply carries out what a round wants, and notes that it is won.
func (w *walk) apply(a *walker, effects []core.Effect) {
	for _, e := range effects {
		if e.Kind == core.Raise {
			w.send(a, e.Node, node.Op{Kind: node.Raise, Stored: e.Stored, Token: e.Token})
		} else {
			w.send(a, e.Node, node.Op{Kind: node.Release})
		}
	}
	if a.round.Verdict() == core.Won && !a.over {
		a.over = true
		w.notef("%s holds with token %d", a.id[28:], a.round.Token())
		w.history = append(w.history, &Hold{Client: a.client, Token: a.round.Token(), Called: a.begun, Start: w.now})
	}
}

func (w *walk) notef(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf("%d: ", w.now)+fmt.Sprintf(format, args...))
}
