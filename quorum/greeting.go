package quorum

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

const (
	// greetLimit bounds one greeting: dialling, a TLS handshake, one script.
	greetLimit = 2 * time.Second
	// greetPause and maxGreetPause space greetings of a node that is down.
	greetPause    = 10 * time.Millisecond
	maxGreetPause = 250 * time.Millisecond
	// refusalPause spaces greetings of a node that we do not accept.
	refusalPause = time.Second
)

// greeting is what a peer knows from introducing itself to its node.
type greeting struct {
	// ready: the node has our configuration. It votes if it shows guard.
	ready bool
	guard string
	// suspect is a guard that is no longer to be trusted: the next greeting says so, as
	// node.Suspect or node.Leapt.
	suspect   string
	suspectAs node.Intent
	// record, unless empty, is what the next greeting has the node keep of its clock, in
	// place of former. No other is taken there before recordAfter.
	record, former string
	recordAfter    core.Instant
	// behind: the node's counters are behind what we have seen of them, and it is not
	// known whether they began anew.
	behind bool
	// quarantine is set while the node does not vote, because it may have
	// forgotten what it granted.
	quarantine *quarantine
	// underWay: a greeting is running. None begins before greetAfter.
	underWay   bool
	greetAfter core.Instant
	greeted    core.Instant // when the last one began
	failures   int
	// refusal is why the node's vote is not accepted; lastErr is why it could
	// not be reached.
	refusal, lastErr error
	// met is closed when the first greeting has ended.
	met    chan struct{}
	isMet  bool
	isDown bool // reported as down, and not as up since
	// after is what to do once the lock is released: calls into foreign code.
	after []func()
}

// startGreeting begins a greeting if none is under way and it is time. It
// reports whether sending has to wait for one.
func (p *peer) startGreeting(now core.Instant) bool {
	switch {
	case p.underWay:
	case now >= p.greetAfter:
		p.underWay = true
		p.stalled = now
		go p.greet()
	case p.kicker == nil:
		p.kicker = time.AfterFunc(p.greetAfter.Sub(now), p.kickLater)
	}
	return p.refusal == nil
}

// kickLater is what the kicker runs.
func (p *peer) kickLater() {
	p.mu.Lock()
	defer p.unlock()
	p.kicker = nil
	p.kick(p.backend.clock.Now())
}

// greet introduces us to the node and takes in its answer.
func (p *peer) greet() {
	ctx, cancel := context.WithTimeout(p.backend.ctx, greetLimit)
	defer cancel()
	h := node.Hello{Keys: p.backend.keys, Conf: p.backend.conf, Nonce: newNonce()}
	p.mu.Lock()
	behind := p.behind
	if p.suspect != "" {
		h.Intent, h.Suspect = p.suspectAs, p.suspect
	}
	if p.record != "" {
		defer p.backend.ended()
		h.Record, h.Former, p.record = p.record, p.former, ""
	}
	p.mu.Unlock()
	sent := p.backend.clock.Now()
	reply, err := p.hello(ctx, h)
	p.backend.noticeSleep() // or the node's clock would seem to have leapt
	if err == nil {
		err = p.hear(sent, reply)
	}
	p.mu.Lock()
	now := p.backend.clock.Now()
	p.underWay, p.silent, p.stalled, p.greeted = false, false, 0, sent
	if p.kicker != nil {
		p.kicker.Stop() // it waited for the next greeting
		p.kicker = nil
	}
	if err == nil {
		err = p.judge(reply)
	}
	var hopeless []*task
	if err != nil {
		p.ready = false
		p.backend.unidentify(p.index)
		p.putOff(now, err)
		hopeless = p.drop(node.Kind.Guarded)
	} else {
		p.clear(h, reply, behind)
		p.welcome(reply)
		if p.quarantine != nil {
			err = p.whyOut()
			hopeless = p.drop(func(k node.Kind) bool { return !p.quarantine.serves(k) })
		} else if err = p.unsteady(now); err != nil {
			hopeless = p.drop(node.Kind.Guarded)
		}
	}
	if !p.isMet {
		p.isMet = true
		close(p.met)
	}
	if (p.suspect != "" || p.behind) && err == nil {
		// The node is to be put in quarantine, or what made us think so came up while
		// this greeting was under way, which knew nothing of it.
		p.ready = false
		p.startGreeting(now)
	}
	p.carryRecord()
	p.kick(now)
	after := p.release()
	for _, t := range hopeless {
		t.sink.fail(t, err, false, now)
	}
	after()
}

// hear takes in which process has answered a greeting, and what its clock shows. It
// returns an error if that does not let us use the node yet.
func (p *peer) hear(sent core.Instant, r node.HelloReply) error {
	p.mu.Lock()
	received := p.backend.clock.Now()
	p.recognize(r)
	p.observeClock(sent, received, r.Time)
	if r.Changed {
		p.recordAfter = 0 // what it has kept is gone
	}
	p.unlock()
	return p.backend.compareClocks(p.index, p.backend.readClock(sent, received, r))
}

// recognize takes in whether the node is still the process that it was.
func (p *peer) recognize(r node.HelloReply) {
	shown, ok := node.ParseGuard(p.guard)
	another := ok && shown.Life != r.Life && !r.Durable
	if another {
		// And perhaps another machine. (The leases of a durable node were kept, and end
		// by its clock.)
		p.steady.Forget()
	}
	p.countAnew(r, another)
}

// clear takes in what has come of suspicions by the answer to h. behind tells that
// the counters were behind when it was sent.
func (p *peer) clear(h node.Hello, r node.HelloReply, behind bool) {
	if p.suspect == h.Suspect || p.suspect != r.Guard {
		p.suspect = ""
	}
	if behind && p.behind {
		p.behind = false
		if r.Standing == node.StandingOK {
			p.suspect, p.suspectAs = r.Guard, node.Suspect
		}
	}
}

// judge returns why the node's vote cannot be accepted.
func (p *peer) judge(r node.HelloReply) error {
	if err := p.backend.unfit(r); err != nil {
		return err
	}
	if r.Standing == node.StandingMismatch {
		return p.backend.mismatch(r.Guard)
	}
	if other := p.backend.identify(p.index, r.RunID); other != nil {
		// Or it was, and the two have changed places: the other one is to look.
		go other.recheck()
		return sameServer(other.node.Name())
	}
	p.backend.learn(r)
	return nil
}

// welcome accepts the node.
func (p *peer) welcome(r node.HelloReply) {
	shown, _ := node.ParseGuard(r.Guard)
	if shown.Conf == node.NoConf {
		shown.Conf = p.backend.current().String()
	}
	p.ready, p.guard = true, node.Guard{Life: r.Life, Conf: shown.Conf}.String()
	if p.refusal != nil && r.Standing != node.StandingQuarantined {
		p.log(slog.LevelInfo, "redlock: node may vote again", "node", p.node.Name())
		p.event(backend.EventNodeAccepted, nil)
	}
	p.failures, p.refusal, p.lastErr, p.greetAfter = 0, nil, nil, 0
	if r.Standing == node.StandingQuarantined {
		p.enterQuarantine(r)
	} else {
		p.leaveQuarantine(r)
	}
	if p.isDown {
		p.isDown = false
		p.log(slog.LevelInfo, "redlock: node answers again", "node", p.node.Name())
		p.event(backend.EventNodeUp, nil)
	}
}

// putOff notes why the node does not vote, and when to greet it again.
func (p *peer) putOff(now core.Instant, err error) {
	err = p.asRefusal(err)
	if !errors.Is(err, backend.ErrUnfit) && !errors.Is(err, backend.ErrMismatch) && !isOutdated(err) && err != errUndecided {
		p.refusal = nil
		p.noteDown(err)
		pause := min(greetPause<<min(p.failures, 10), maxGreetPause)
		p.failures++
		p.greetAfter = now.Add(pause)
		return
	}
	if p.refusal == nil || p.refusal.Error() != err.Error() {
		p.log(slog.LevelWarn, "redlock: node does not vote", "node", p.node.Name(), "reason", err)
		p.event(backend.EventNodeRefused, err)
	}
	p.refusal, p.lastErr = err, nil
	p.greetAfter = now.Add(refusalPause)
}

// asRefusal turns a node's denial into the sentinels for it.
func (p *peer) asRefusal(err error) error {
	var c *node.CallError
	if errors.As(err, &c) && c.Denied {
		return notPermitted(err)
	}
	if c != nil && c.Mode != "" {
		e := wrongMode(c.Mode)
		e.Err = err
		return e
	}
	return err
}

// noteDown notes that the node could not be reached or did not answer.
func (p *peer) noteDown(err error) {
	p.lastErr = err
	if p.isDown || p.backend.isClosed() {
		return
	}
	p.isDown = true
	p.log(slog.LevelWarn, "redlock: node does not answer", "node", p.node.Name(), "err", err)
	p.event(backend.EventNodeDown, err)
}

// drop removes from the queue what the node, as it stands, will not do, and
// returns it.
func (p *peer) drop(hopeless func(node.Kind) bool) []*task {
	var dropped []*task
	p.takes.remove(func(t *task) bool {
		if !hopeless(t.op.Kind) {
			return false
		}
		t.settled = true
		dropped = append(dropped, t)
		return true
	})
	return dropped
}

// event reports something about the node once the lock is released.
func (p *peer) event(kind backend.EventKind, err error) { p.tell(backend.Event{Kind: kind, Err: err}) }

func (p *peer) tell(e backend.Event) {
	e.Node = p.node.Name()
	p.after = append(p.after, func() { p.backend.emit(e) })
}

// log writes to the log once the lock is released: whoever reads it may be slow.
func (p *peer) log(level slog.Level, msg string, args ...any) {
	p.after = append(p.after, func() { p.backend.cfg.Logger.Log(context.Background(), level, msg, args...) })
}

// release releases the lock. The function it returns makes the calls that
// waited for it; what waits for an answer comes before them.
func (p *peer) release() func() {
	after := p.after
	p.after = nil
	p.mu.Unlock()
	return func() {
		for _, f := range after {
			f()
		}
	}
}

// unlock releases the lock and makes the calls that waited for it.
func (p *peer) unlock() { p.release()() }

// recheck greets the node. One that votes goes on voting meanwhile.
func (p *peer) recheck() {
	p.mu.Lock()
	begin := !p.underWay && !p.shut
	p.underWay = p.underWay || begin
	p.unlock()
	if begin {
		p.greet()
	}
}

// introduce greets the node if that was never done.
func (p *peer) introduce() {
	p.mu.Lock()
	defer p.unlock()
	if !p.isMet && !p.underWay {
		p.startGreeting(p.backend.clock.Now())
	}
}
