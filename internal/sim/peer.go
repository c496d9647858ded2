package sim

import (
	"slices"
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// peer is a client's way to one node: quorum/peer.go with one difference, that
// it keeps sending what takes to a node that has fallen silent. What stands in
// the same place there is more careful; safety does not depend on it.
type peer struct {
	client *client
	index  int
	queue  []*task
	flight *flight // the call under way, until it is answered or silent
	// ready: the node has taken our configuration and shows guard.
	ready, greeting bool
	guard           string
	clock           core.NodeClock
	// quarantine is set while the node does not vote; watching, that a timer looks
	// after it.
	quarantine *quarantine
	watching   bool
}

// task is one operation of an attempt on its way to one node.
type task struct {
	op        node.Op
	attempt   *attempt
	lane      int
	sent      core.Instant // zero before
	settled   bool         // the attempt has heard an outcome
	regreeted bool         // asked for the second time, after a new greeting
}

// flight is a call on its way.
type flight struct {
	tasks    []*task
	answered bool
}

// undoFor is how long operations that free are kept for a node that cannot be
// reached.
const undoFor = 2 * time.Second

// submit queues t, and sees to it that it does not wait for ever.
func (p *peer) submit(t *task) {
	if p.refuses(t.op.Kind) {
		p.client.counts.add("task: refused in quarantine")
		p.client.after(0, func() { p.fail(t, false, false) })
		return
	}
	p.queue = append(p.queue, t)
	limit := t.attempt.timeout
	if !t.op.Kind.Guarded() {
		limit = undoFor
	}
	p.client.after(limit, func() {
		if t.sent == 0 && !t.settled {
			p.queue = slices.DeleteFunc(p.queue, func(u *task) bool { return u == t })
			p.fail(t, false, false)
		}
	})
	p.kick()
}

// kick sends what is queued, as one call, unless one is under way.
func (p *peer) kick() {
	if len(p.queue) == 0 || p.flight != nil {
		return
	}
	if !p.ready {
		p.greet()
		return
	}
	f := &flight{}
	batch := p.queue
	p.queue = nil
	for _, t := range batch {
		if t.attempt.depart(t) {
			f.tasks = append(f.tasks, t)
		}
	}
	if len(f.tasks) == 0 {
		p.kick()
		return
	}
	p.launch(f)
}

func (p *peer) launch(f *flight) {
	c := p.client
	p.flight = f
	call := &node.Call{Guard: p.guard, MaxTTL: c.cfg.MaxTTL.Milliseconds(), Keys: c.keys}
	for _, t := range f.tasks {
		t.sent = c.now
		if latest := p.clock.Latest(c.now.Add(t.attempt.timeout)); latest != 0 && t.op.Kind.Votes() {
			t.op.NotAfter = latest
		}
		call.Ops = append(call.Ops, t.op)
		c.after(t.attempt.timeout, func() {
			if !f.answered && !t.settled {
				p.silence(f, t)
			}
		})
	}
	life := c.life
	c.ask(c, p.index, func(s *server) func() {
		reply := s.call(call)
		return func() { c.do(life, func() { p.land(f, &reply) }) }
	}, func() { c.do(life, func() { p.land(f, nil) }) })
	c.maybeStall(call)
}

// maybeStall lets the process stand still now and then with a call under way:
// ten times as often if it is one of the rare calls of those who have the name,
// or almost.
func (c *client) maybeStall(call *node.Call) {
	p := c.stall
	if slices.ContainsFunc(call.Ops, func(op node.Op) bool { return op.Kind != node.Acquire && op.Kind != node.Release }) {
		p *= 10
	}
	if p > 0 && c.rnd.Float64() < p {
		c.counts.add("client: stalled after a send")
		c.pause(c.upTo(c.cfg.MaxTTL + c.cfg.MaxTTL/4))
	}
}

// silence gives a task up whose node does not answer.
func (p *peer) silence(f *flight, t *task) {
	if p.flight == f {
		p.flight = nil
	}
	p.fail(t, true, false)
	p.kick()
}

// fail tells the attempt that its task got no answer. sent: the node may have
// carried it out. again: an error came back, and it may be worth another try.
func (p *peer) fail(t *task, sent, again bool) {
	t.settled = true
	t.attempt.fail(t, sent, again)
}

// land takes in the end of a call; no reply means that the node refused the
// connection. What a doubled call brings back once more is not looked at.
func (p *peer) land(f *flight, reply *node.Reply) {
	if f.answered {
		return
	}
	f.answered = true
	if p.flight == f {
		p.flight = nil
	}
	var strangers []*task
	for i, t := range f.tasks {
		if reply == nil {
			p.ready = false
			if !t.settled {
				p.fail(t, false, true)
			}
			continue
		}
		p.clock.Observe(t.sent, reply.Time)
		if reply.Answers[i].Code == node.NoGuard {
			p.ready = false
			if !t.settled && !t.regreeted {
				p.client.counts.add("peer: greeted again")
				t.regreeted, t.sent = true, 0
				strangers = append(strangers, t)
				continue
			}
		}
		t.settled = true
		t.attempt.answer(t, reply.Answers[i])
	}
	p.queue = append(strangers, p.queue...)
	p.giveUpLater(strangers)
	p.kick()
}

// giveUpLater bounds the second wait of tasks.
func (p *peer) giveUpLater(tasks []*task) {
	for _, t := range tasks {
		p.client.after(t.attempt.timeout, func() {
			if t.sent == 0 && !t.settled {
				p.queue = slices.DeleteFunc(p.queue, func(u *task) bool { return u == t })
				p.fail(t, false, false)
			}
		})
	}
}

// greetPause is how long to wait for the answer to a greeting before another.
const greetPause = 250 * time.Millisecond

// greet introduces us to the node, until it answers or nothing is queued.
func (p *peer) greet() {
	if p.greeting {
		return
	}
	p.greeting = true
	c := p.client
	sent, over := c.now, false
	c.after(greetPause, func() {
		if !over {
			over, p.greeting = true, false
			p.kick()
		}
	})
	hello := node.Hello{Keys: c.keys, Conf: c.conf, Nonce: c.newNonce()}
	query(p, func(s *server) node.HelloReply { return s.hello(hello) }, func(r node.HelloReply) {
		if !over {
			over, p.greeting = true, false
			p.clock.Observe(sent, r.Time)
			p.welcome(r)
		}
	})
}

// welcome takes in who the node is, and gives up what it will not do.
func (p *peer) welcome(r node.HelloReply) {
	c := p.client
	c.counts.add("hello: " + string(r.Standing))
	shown, _ := node.ParseGuard(r.Guard)
	if shown.Conf == node.NoConf {
		shown.Conf = c.conf.String()
	}
	p.ready, p.guard = true, node.Guard{Life: r.Life, Conf: shown.Conf}.String()
	if r.Standing == node.StandingQuarantined {
		p.enterQuarantine(r)
	} else {
		p.quarantine = nil
	}
	var hopeless []*task
	p.queue = slices.DeleteFunc(p.queue, func(t *task) bool {
		if p.refuses(t.op.Kind) {
			hopeless = append(hopeless, t)
			return true
		}
		return false
	})
	for _, t := range hopeless {
		c.counts.add("task: dropped for a quarantine")
		p.fail(t, false, false)
	}
	p.kick()
}
