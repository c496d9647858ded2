package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
	"example.com/redlock/internal/answer"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

var (
	errForeignHolder = errors.New("held by a client that is not ours")
	errBroken        = errors.New("lease broken by an operator")
	errStale         = errors.New("operation came too late by the node's clock")
	errNoGuard       = errors.New("node does not know our configuration")
	errPassed        = errors.New("validity has passed")
	errForgotten     = errors.New("too many nodes no longer have it")
)

// lease is the part of an attempt that begins when its round is won. All of it
// is guarded by the attempt's lock.
type lease struct {
	holding core.Holding
	token   fence.Token
	byClock bool          // the order of token rests on a node's clock
	renewal *core.Renewal // under way, or the last one
	noRenew bool
	// brief tells that it was handed over, for a short time, and not extended yet.
	brief      bool
	renewTimer *time.Timer
	endTimer   *time.Timer
	lostErr    error
	// extenders wait for the renewal under way.
	extenders []chan error
}

// win turns the round into a lease.
func (a *attempt) win() {
	a.phase = holding
	a.holding = a.round.Holding()
	a.token = fence.Token(a.round.Token())
	a.noRenew = a.req.NoRenew
	now := a.backend.clock.Now()
	a.endTimer = time.AfterFunc(a.holding.Until().Sub(now), a.checkEnd)
	next := a.begun.Add(core.RenewEvery(a.req.TTL, random()))
	if a.brief {
		next = core.ExtendBrief(now, a.holding.Until())
	}
	if !a.noRenew || a.brief {
		a.renewTimer = time.AfterFunc(next.Sub(now), a.renew)
	}
	a.backend.hold(a)
}

// rearm moves the end timer to where the validity now ends.
func (a *attempt) rearm() {
	a.endTimer.Reset(max(a.holding.Until().Sub(a.backend.clock.Now()), 0))
}

// checkEnd ends the lease if its validity has passed. The timer that runs it is
// independent of the renewal.
func (a *attempt) checkEnd() {
	a.mu.Lock()
	defer a.unlock()
	a.checkHeld()
}

// checkHeld ends the lease if it can no longer be held, and returns the error
// of one that has ended.
func (a *attempt) checkHeld() error {
	if a.phase == holding {
		switch a.holding.Ending(a.backend.clock.Now()) {
		case core.Forgotten:
			a.lose(errForgotten)
		case core.Passed:
			a.lose(errPassed)
		case core.Broken:
			a.lose(errBroken)
		default:
			a.rearm()
			return nil
		}
	}
	switch a.phase {
	case ended:
		return a.lostErr
	case holding:
		return nil
	}
	return a.goneErr()
}

// goneErr is the error of a lease that was given back or moved out.
func (a *attempt) goneErr() error {
	return &backend.QuorumError{Op: "extend", Name: a.req.Name, Reasons: []error{backend.ErrReleased}}
}

// lose ends the lease by itself. Nothing is released: the holder may still be
// acting, and what it holds goes with the TTL.
func (a *attempt) lose(why error) {
	a.phase = ended
	a.lostErr = &backend.QuorumError{
		Op: "hold", Name: a.req.Name, Need: a.backend.cfg.Quorum, Votes: a.votes(),
		Reasons: []error{fmt.Errorf("%w: %w", backend.ErrLost, why)}, MayRemain: a.mayRemain(),
	}
	a.stop()
	a.backend.quit(a)
	err, extenders := a.lostErr, a.extenders
	a.extenders = nil
	a.later(func() {
		a.backend.emit(backend.Event{Kind: backend.EventLost, Name: a.req.Name, Token: a.token, Err: err})
	})
	// Before all else that waits: a log that is stuck must not keep it back. And nobody
	// is told by Extend who could still find the lease's context alive.
	a.after = append([]func(){func() {
		if a.req.Lost != nil {
			a.req.Lost(err)
		}
		tell(extenders, err)
	}}, a.after...)
}

// stop ends the timers of the lease.
func (a *attempt) stop() {
	a.endTimer.Stop()
	if a.renewTimer != nil {
		a.renewTimer.Stop()
	}
	a.backend.drop(a)
}

// abandon ends the renewal of a lease whose backend is being closed, or the wait: its
// caller would leave the line, too, but perhaps after Close has seen that nothing is
// under way.
func (a *attempt) abandon() {
	a.mu.Lock()
	defer a.unlock()
	switch a.phase {
	case holding:
		a.stop()
		a.noRenew, a.brief = true, false
	case waiting:
		a.leave()
	}
}

// renew begins a renewal, unless one is under way.
func (a *attempt) renew() {
	a.mu.Lock()
	defer a.unlock()
	if a.noRenew && !a.brief {
		return
	}
	a.beginRenewal()
}

func (a *attempt) beginRenewal() {
	if a.checkHeld() != nil || a.renewing() {
		return
	}
	renewal, effects := core.NewRenewal(a.backend.clock.Now(), len(a.lanes), a.req.TTL)
	a.renewal = renewal
	a.applyRenewal(effects)
}

func (a *attempt) renewing() bool {
	return a.renewal != nil && a.renewal.Verdict() == core.Pending
}

// renewed takes in the answer to an extension or a join.
func (a *attempt) renewed(t *task, ans node.Answer, at core.Instant) {
	if !a.holding.News(t.lane, t.sent) {
		return
	}
	l := &a.lanes[t.lane]
	l.vote = vote(l.vote.Node, ans, at.Sub(t.sent))
	a.stepRenewal(at, answer.Renewal(t.op, ans, t.lane, t.sent))
}

func (a *attempt) notRenewed(t *task, err error, at core.Instant) {
	l := &a.lanes[t.lane]
	l.vote = backend.Vote{Node: l.vote.Node, Outcome: backend.OutcomeSilent, Err: err}
	if err != nil {
		l.vote.Outcome = backend.OutcomeFailed
	}
	a.stepRenewal(at, answer.NoRenewal(t.op.Kind, t.lane))
}

// stepRenewal moves the renewal on. An answer may be to an earlier renewal: what
// it says of the node is true all the same.
func (a *attempt) stepRenewal(at core.Instant, ev core.RenewalEvent) {
	if a.phase != holding {
		return
	}
	before := a.renewal.Verdict()
	effects := append([]core.RenewalEffect(nil), a.renewal.Step(at, &a.holding, ev)...)
	if a.checkHeld() != nil {
		return
	}
	if after := a.renewal.Verdict(); after != before {
		a.renewalDecided(after, at)
	}
	a.applyRenewal(effects)
}

// applyRenewal carries out what a renewal wants.
func (a *attempt) applyRenewal(effects []core.RenewalEffect) {
	for _, e := range effects {
		if a.phase != holding {
			return
		}
		switch e.Kind {
		case core.Extend:
			a.send(e.Node, a.extendOp())
		case core.JoinNode:
			a.send(e.Node, node.Op{
				Kind: node.Join, Name: a.req.Name, ID: a.id, TTL: a.req.TTL.Milliseconds(),
				Token: uint64(a.token), Owner: a.req.Owner, Mode: node.Mode(a.req.Mode),
			})
		case core.ReportVanished:
			name := a.lanes[e.Node].vote.Node
			a.later(func() {
				a.backend.cfg.Logger.Warn("redlock: a lease is gone from a node before its time",
					"name", a.req.Name, "node", name)
				a.backend.emit(backend.Event{Kind: backend.EventVanished, Name: a.req.Name, Node: name, Token: a.token})
			})
		}
	}
}

// renewalDecided reports a renewal and arranges the next one.
func (a *attempt) renewalDecided(v core.Verdict, at core.Instant) {
	took := at.Sub(a.renewal.Begun())
	event := backend.Event{Kind: backend.EventExtended, Name: a.req.Name, Token: a.token, Took: took}
	if v == core.Lost {
		event.Kind = backend.EventExtendFailed
		event.Err = &backend.QuorumError{
			Op: "extend", Name: a.req.Name, Need: a.backend.cfg.Quorum, Votes: a.votes(),
			Reasons: []error{backend.ErrNoQuorum},
		}
	}
	a.brief = a.brief && v == core.Lost
	a.tellExtenders(event.Err)
	if !a.noRenew || a.brief {
		a.renewTimer.Reset(max(a.renewal.Next(at, &a.holding, random()).Sub(at), 0))
	}
	a.later(func() { a.backend.emit(event) })
}

func (a *attempt) tellExtenders(err error) {
	tell(a.extenders, err)
	a.extenders = nil
}

func tell(extenders []chan error, err error) {
	for _, c := range extenders {
		c <- err // buffered for one
	}
}

// Token implements backend.Lease.
func (a *attempt) Token() fence.Token {
	a.mu.Lock()
	defer a.unlock()
	return a.token
}

// TokenByClock implements backend.Lease.
func (a *attempt) TokenByClock() bool {
	a.mu.Lock()
	defer a.unlock()
	return a.byClock
}

// Deadline implements backend.Lease.
func (a *attempt) Deadline() time.Time {
	a.backend.noticeSleep()
	a.mu.Lock()
	defer a.unlock()
	return a.backend.clock.Time(a.holding.Until())
}

// left is how long the lease is valid without another extension.
func (a *attempt) left() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holding.Until().Sub(a.backend.clock.Now())
}

// Extend implements backend.Lease. It joins a renewal that is under way.
func (a *attempt) Extend(ctx context.Context) error {
	if ctx.Err() != nil {
		return a.extendEnded(ctx)
	}
	done := make(chan error, 1)
	a.backend.noticeSleep()
	a.mu.Lock()
	if err := a.checkHeld(); err != nil {
		a.unlock()
		return err
	}
	a.extenders = append(a.extenders, done)
	a.beginRenewal()
	a.unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return a.extendEnded(ctx)
	}
}

func (a *attempt) extendEnded(ctx context.Context) error {
	return &backend.QuorumError{Op: "extend", Name: a.req.Name, Reasons: ctxReasons(ctx)}
}

// StopRenewal implements backend.Lease. The first extension of what was handed over
// belongs to its being taken.
func (a *attempt) StopRenewal() {
	a.mu.Lock()
	defer a.unlock()
	a.noRenew = true
	if a.renewTimer != nil && !a.brief {
		a.renewTimer.Stop()
	}
}
