package quorum

import (
	"log/slog"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
)

// move is a movement of a node's clock.
type move struct {
	at core.Instant
	by time.Duration
}

// alike is how much the movements of two clocks may differ, and how far they may
// be noticed apart, to be taken for one of our own.
const (
	alikeBy     = 500 * time.Millisecond
	alikeWithin = 10 * time.Second
)

// observeClock takes in what the node's clock showed.
func (p *peer) observeClock(sent, received core.Instant, micros int64) {
	p.clock.Observe(sent, micros)
	by := p.steady.Observe(sent, received, micros)
	if by == 0 {
		return
	}
	p.moved = by
	if by > 0 {
		p.leapt.Store(int64(received))
		p.backend.leaps.Add(1)
	}
	p.after = append(p.after, func() { p.backend.clockMoved(p, move{received, by}) })
}

// leaptSince reports whether what the node granted at that time may have ended.
func (p *peer) leaptSince(at core.Instant) bool { return p.leapt.Load() > int64(at) }

// unsteady returns why the node does not vote for its clock, or nil.
func (p *peer) unsteady(now core.Instant) error {
	if left := p.steady.Suspect(now); left > 0 {
		return &quarantinedError{why: whyMoved(p.moved), left: left}
	}
	return nil
}

// clockMoved is told that the clock of a node moved. If those of all nodes did,
// alike, it was ours that stood still: that of a machine that was paused from
// outside, for instance.
func (b *Backend) clockMoved(p *peer, m move) {
	b.mu.Lock()
	b.moves[p.index] = m
	own, least := len(b.peers) > 1, m.by
	var unheard []*peer
	for i, other := range b.peers {
		o, ok := b.moves[i]
		apart, differ := m.at.Sub(o.at), m.by-o.by
		if !ok || apart >= alikeWithin {
			unheard = append(unheard, other)
		}
		own = own && ok && apart < alikeWithin && max(differ, -differ) < alikeBy
		least = min(least, o.by)
	}
	if own {
		clear(b.moves)
	}
	b.mu.Unlock()
	if own {
		b.ownClockMoved(least)
		return
	}
	for _, other := range unheard {
		// Whether theirs moved, too, should be known before it matters: a round that
		// is lost for want of votes does not ask them.
		go other.recheck()
	}
	err := &quarantinedError{why: whyMoved(m.by), left: b.cfg.MaxTTL}
	b.cfg.Logger.Log(b.ctx, slog.LevelWarn, "redlock: the clock of a node moved; it does not vote until it has been steady",
		"node", p.node.Name(), "by", m.by, "for", b.cfg.MaxTTL)
	b.emit(backend.Event{Kind: backend.EventClockMoved, Node: p.node.Name(), Took: m.by, Err: err})
	if m.by < 0 {
		return // leases end later there: no rival gets the vote
	}
	for _, a := range b.leases() {
		a.distrust(p.index)
	}
}

// ownClockMoved takes in that our own clock lost time, against the clocks of all
// nodes.
func (b *Backend) ownClockMoved(by time.Duration) {
	for _, p := range b.peers {
		p.mu.Lock()
		p.steady.Forget()
		p.unlock()
	}
	if by > 0 {
		b.clock.Skip(by)
		b.tellSlept(by)
	}
}

// voidVotes takes back the votes of nodes whose clocks have leapt ahead since the
// round began.
func (a *attempt) voidVotes(at core.Instant) {
	leaps := a.backend.leaps.Load()
	if leaps == a.leaps {
		return
	}
	a.leaps = leaps
	for i, p := range a.backend.peers {
		if a.lanes[i].vote.Outcome == backend.OutcomeGranted && p.leaptSince(a.begun) {
			a.apply(append([]core.Effect(nil), a.round.Step(at, core.Event{Kind: core.Void, Node: i})...))
		}
	}
}

// distrust takes in that node i may have let the lease end.
func (a *attempt) distrust(i int) {
	a.mu.Lock()
	defer a.unlock()
	if a.phase == holding {
		a.holding.Vanish(a.backend.clock.Now(), i)
		a.checkHeld()
	}
}
