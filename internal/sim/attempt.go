package sim

import (
	"slices"
	"time"

	"example.com/redlock/internal/answer"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// phase is where an attempt stands: see quorum/attempt.go.
type phase uint8

const (
	voting phase = iota
	undoing
	holding
	ended
	releasing
	moved
)

// request is what a worker asks for.
type request struct {
	name        int
	ttl         time.Duration
	minValidity time.Duration
	noRenew     bool
}

// attempt is one random id on all nodes: first a round, then perhaps a lease.
type attempt struct {
	client  *client
	req     request
	id      string
	timeout time.Duration
	begun   core.Instant
	phase   phase
	lanes   []lane
	round   *core.Round
	// hopeless: too many nodes are in quarantine.
	hopeless bool
	raised   bool // the token took a second round
	byClock  bool // the order of the token rests on a node's clock
	// decided is told once whether the round was won.
	decided func(won bool)
	lease
}

// lane is an attempt at one node.
type lane struct {
	task *task    // under way
	next *node.Op // waits for task to end
	// touched: something that takes was sent. released: a release was handed on
	// since.
	touched, released bool
	freed             bool // the node has answered since that it has no key of ours
	void              bool // it is certain that the request for a vote was not carried out
	vote              node.Answer
}

// start asks all nodes for their votes, with the operation first.
func (c *client) start(r request, id string, first node.Op, decided func(won bool)) *attempt {
	a := &attempt{
		client: c, req: r, id: id, timeout: c.cfg.timeout(r.ttl), begun: c.now,
		lanes: make([]lane, len(c.peers)), decided: decided,
		round: core.NewRound(core.RoundConfig{
			Nodes: len(c.peers), Quorum: c.cfg.Quorum, TTL: r.ttl, MinValidity: r.minValidity, Drift: c.cfg.Drift,
		}),
	}
	c.attempts = append(c.attempts, a)
	if c.refusing(first.Kind) > c.cfg.Nodes-c.cfg.Quorum {
		c.counts.add("round: hopeless")
		a.hopeless = true
		c.after(0, a.giveUp)
		return a
	}
	for i := range a.lanes {
		a.send(i, first)
	}
	return a
}

// refusing is how many nodes would not do what k asks for.
func (c *client) refusing(k node.Kind) int {
	count := 0
	for _, p := range c.peers {
		if p.refuses(k) {
			count++
		}
	}
	return count
}

// acquire begins an attempt with a fresh id.
func (c *client) acquire(r request, decided func(won bool)) *attempt {
	id := c.newID()
	return c.start(r, id, node.Op{
		Kind: node.Acquire, Name: lockNames[r.name], ID: id, TTL: r.ttl.Milliseconds(), Proposal: c.propose(),
	}, decided)
}

// handle is a lease that was moved out.
type handle struct {
	name  int
	id    string
	token uint64
}

// takeOver begins an attempt that replaces the owner of a lease.
func (c *client) takeOver(h handle, r request, decided func(won bool)) *attempt {
	id := c.newID()
	c.proposer.Saw(h.token)
	return c.start(r, id, node.Op{
		Kind: node.Replace, Name: lockNames[h.name], ID: h.id, NewID: id, TTL: r.ttl.Milliseconds(), Proposal: c.propose(),
	}, decided)
}

// send has op carried out at node i, after what is under way there. A release
// takes the place of whatever else was to follow.
func (a *attempt) send(i int, op node.Op) {
	l := &a.lanes[i]
	if op.Kind == node.Release {
		l.released = true
	}
	if l.task != nil {
		if l.next == nil || l.next.Kind != node.Release {
			l.next = &op
		}
		return
	}
	l.task = &task{op: op, attempt: a, lane: i}
	a.client.peers[i].submit(l.task)
}

// proceed sends what waited for the operation that is over at node i.
func (a *attempt) proceed(i int) {
	if l := &a.lanes[i]; l.task == nil && l.next != nil {
		op := *l.next
		l.next = nil
		if op.Kind == node.Release && !l.touched {
			a.freed(i)
		} else {
			a.send(i, op)
		}
	}
	a.tellIdle()
}

// depart is asked whether t, about to be sent, is still wanted.
func (a *attempt) depart(t *task) bool {
	wanted := true
	switch t.op.Kind {
	case node.Acquire, node.Replace:
		wanted = a.phase == voting || a.phase == holding
	case node.Raise:
		wanted = a.phase == voting
	case node.Extend, node.Join:
		wanted = a.phase == holding
	}
	l := &a.lanes[t.lane]
	switch {
	case !wanted:
		t.settled = true
		a.client.counts.add("task: no longer wanted")
		a.fail(t, false, false)
	case t.op.Kind.Guarded():
		l.touched, l.released, l.freed, l.void = true, false, false, false
	}
	return wanted
}

// answer takes in a node's answer.
func (a *attempt) answer(t *task, ans node.Answer) {
	l := &a.lanes[t.lane]
	if l.task == t {
		l.task = nil
	} else {
		a.client.counts.add("task: answer after silence")
	}
	switch t.op.Kind {
	case node.Acquire, node.Replace:
		a.client.proposer.Saw(ans.Token)
		a.voted(t, ans)
	case node.Raise:
		a.raiseOver(t, ans.Code == node.Done)
	case node.Extend, node.Join:
		a.renewed(t, ans)
	case node.Release:
		a.freed(t.lane)
	}
	a.proceed(t.lane)
}

// fail takes in that a node did not answer.
func (a *attempt) fail(t *task, sent, again bool) {
	l := &a.lanes[t.lane]
	if l.task != t {
		return
	}
	l.task = nil
	switch t.op.Kind {
	case node.Acquire, node.Replace:
		l.void = !sent
		a.step(answer.NoVote(t.lane, sent))
	case node.Raise:
		a.raiseOver(t, false)
	case node.Extend, node.Join:
		a.notRenewed(t)
	case node.Release:
		a.notFreed(t, again)
	}
	a.proceed(t.lane)
}

// voted takes in the answer to the request for a vote.
func (a *attempt) voted(t *task, ans node.Answer) {
	l := &a.lanes[t.lane]
	ev := answer.Vote(ans, t.lane, t.sent)
	l.vote = ans
	l.freed = ans.Code != node.Granted
	l.void = l.void || ev.Kind == core.Unsent
	a.byClock = a.byClock || ans.ByClock
	switch {
	case a.phase == voting || a.phase == undoing:
		if a.phase == undoing && ans.Code == node.Granted {
			a.client.counts.add("late grant: undone")
		}
		a.step(ev)
	case ans.Code != node.Granted:
	case a.phase == holding:
		a.client.counts.add("late grant: kept")
		a.holding.Ack(a.client.now, t.lane, t.sent, a.req.ttl)
		a.note()
		a.rearm()
	case a.phase == releasing || a.phase == ended:
		a.client.counts.add("late grant: undone")
		a.send(t.lane, a.releaseOp())
	}
}

func (a *attempt) raiseOver(t *task, ok bool) {
	a.client.counts.either(ok, "raise: done", "raise: failed")
	a.step(answer.Raise(t.lane, ok))
}

// step moves the round on and carries out what it wants.
func (a *attempt) step(ev core.Event) {
	if a.phase == voting || a.phase == undoing {
		a.apply(slices.Clone(a.round.Step(a.client.now, ev)))
	}
}

// giveUp ends the round for reasons of the worker's, unless it is decided.
func (a *attempt) giveUp() {
	if a.phase == voting {
		a.client.counts.add("round: given up")
		a.apply(slices.Clone(a.round.GiveUp()))
	}
}

func (a *attempt) apply(effects []core.Effect) {
	c := a.client
	was := a.phase
	if was == voting {
		switch a.round.Verdict() {
		case core.Won:
			a.win()
		case core.Lost:
			a.phase = undoing
			a.releaseUntil = c.now.Add(undoFor)
			c.counts.add("round: lost")
			if a.round.Late() {
				c.counts.add("round: late")
			}
		}
	}
	for _, e := range effects {
		switch e.Kind {
		case core.Raise:
			a.raised = true
			a.send(e.Node, node.Op{
				Kind: node.Raise, Name: lockNames[a.req.name], ID: a.id, Stored: e.Stored, Token: e.Token,
			})
		case core.Undo:
			a.send(e.Node, a.releaseOp())
		}
	}
	if was == voting && a.phase != voting {
		a.decided(a.phase == holding)
	}
}

func (a *attempt) releaseOp() node.Op {
	return node.Op{Kind: node.Release, Name: lockNames[a.req.name], ID: a.id}
}

// heldBy reports whether a quorum of refusals names one holder, and how long
// that one would stay without renewal.
func (a *attempt) heldBy() (held bool, remaining time.Duration) {
	count := make(map[string]int)
	last := make(map[string]time.Duration)
	for _, l := range a.lanes {
		if h := l.vote.Holder; h != "" {
			count[h]++
			last[h] = max(last[h], time.Duration(l.vote.Remaining)*time.Millisecond)
			if count[h] >= a.client.cfg.Quorum {
				held, remaining = true, last[h]
			}
		}
	}
	return held, remaining
}
