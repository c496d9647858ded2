package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// release is the part of an attempt that gives back what it took. All of it is
// guarded by the attempt's lock.
type release struct {
	since core.Instant
	// heir is the number that the releases propose for whoever is next in line: the
	// same at all nodes, so that they agree at once.
	heir uint64
	// done is closed when Release knows its result.
	done   chan struct{}
	result error
	// lingers: no node owes an answer, and too few have confirmed. unlinger ends
	// the watch for the end of the backend.
	lingers  bool
	unlinger func() bool
	// tally has what each node made of the release.
	tally []tally
	// wantIdle is closed once nothing is under way at any node.
	wantIdle chan struct{}
}

type tally uint8

const (
	owing       tally = iota // no answer yet
	confirmed                // the node does not have our key
	vanished                 // and it should have had it
	unconfirmed              // silence or an error
)

// retryRelease is how long to pause before a release is repeated that met an
// error on its way.
const retryRelease = 50 * time.Millisecond

// lingerFor is how long Release waits for what it cannot count on.
const lingerFor = 500 * time.Millisecond

// Release implements backend.Lease. It does not look at ctx: it takes no longer
// than what is under way at the nodes, a node's timeout and lingerFor in any
// case, and a caller that is being cancelled wants its lock given back all the
// same.
func (a *attempt) Release(context.Context) error {
	a.backend.noticeSleep()
	a.mu.Lock()
	a.checkHeld()
	switch a.phase {
	case holding:
		a.beginRelease()
	case ended:
		// What is left of a lost lease is given back for the others' sake. There
		// is nothing in the answer that the caller could use.
		a.phase = releasing
		a.release.done = make(chan struct{})
		a.result = a.lostErr
		close(a.release.done)
		a.sendReleases()
	case moved:
		a.unlock()
		return nil
	}
	done := a.release.done
	a.unlock()
	<-done
	return a.result
}

func (a *attempt) beginRelease() {
	a.phase = releasing
	a.stop()
	a.tellExtenders(a.goneErr())
	a.release.since = a.backend.clock.Now()
	a.release.done = make(chan struct{})
	a.release.tally = make([]tally, len(a.lanes))
	a.sendReleases()
}

// sendReleases has every node that may have our key delete it. An extension
// that is still under way goes first: a release never overtakes it.
func (a *attempt) sendReleases() {
	a.heir = a.backend.propose()
	for i := range a.lanes {
		l := &a.lanes[i]
		if l.touched || l.task != nil {
			a.send(i, a.releaseOf(a.id))
		} else {
			a.count(i, confirmed)
		}
	}
}

// freed takes in a node's answer to a release.
func (a *attempt) freed(t *task, ans node.Answer, at core.Instant) {
	l := &a.lanes[t.lane]
	switch {
	case ans.Code == node.Failed:
		a.notFreed(t, fmt.Errorf("node: %s", ans.Err), true, at)
		return
	case a.phase == waiting:
		a.stepLine(at, a.notInLine(t))
		return
	case t.op.ID != a.id:
		return
	case ans.Code == node.Done:
		a.count(t.lane, confirmed)
	default:
		// After a release without an answer, it may be that one that freed it.
		if a.release.tally != nil && a.holding.Held(t.lane) && a.release.tally[t.lane] != unconfirmed {
			a.count(t.lane, vanished)
		} else {
			a.count(t.lane, confirmed)
		}
	}
	l.freed = true
}

// notFreed takes in that a release was not confirmed. One that an error stopped
// is repeated for a while; one that met silence has been written and needs no
// second. While a place is kept the next heartbeat shows what is left to give back.
func (a *attempt) notFreed(t *task, err error, again bool, at core.Instant) {
	if a.phase == waiting {
		a.stepLine(at, a.notInLine(t))
		return
	}
	if t.op.ID == a.id {
		if l := &a.lanes[t.lane]; a.release.tally != nil { // the votes of a lost round stand
			l.vote = backend.Vote{Node: l.vote.Node, Outcome: backend.OutcomeSilent, Err: err}
			if err != nil {
				l.vote.Outcome = backend.OutcomeFailed
			}
		}
		a.count(t.lane, unconfirmed)
	}
	if err != nil && again && !t.kept && !errors.Is(err, errSilent) {
		a.repeatRelease(t)
	}
}

// repeatRelease releases again in a while what t was to release, unless that has gone
// on for too long. Close waits for it.
func (a *attempt) repeatRelease(t *task) {
	if !a.owed(t) || a.backend.clock.Now().Add(retryRelease) >= t.until {
		return
	}
	a.backend.begun()
	time.AfterFunc(retryRelease, func() {
		a.mu.Lock()
		defer a.unlock()
		defer a.backend.ended()
		if a.owed(t) {
			a.enqueue(&task{op: t.op, sink: a, lane: t.lane, timeout: t.timeout, until: t.until})
		}
	})
}

// owed reports whether a node may still have what t was to release.
func (a *attempt) owed(t *task) bool {
	if t.op.ID == a.id {
		return !a.lanes[t.lane].freed
	}
	return a.phase != waiting
}

// count notes what a node made of the release and settles it when it can be.
func (a *attempt) count(i int, what tally) {
	if a.release.tally == nil || a.result != nil || a.release.tally[i] == confirmed {
		return
	}
	a.release.tally[i] = what
	var free, gone, open int
	for _, have := range a.release.tally {
		switch have {
		case confirmed:
			free++
		case vanished:
			free++
			gone++
		case owing:
			open++
		}
	}
	quorum := a.backend.cfg.Quorum
	switch {
	case gone > 0 && a.holding.HeldCount()-gone < quorum:
		a.settleRelease(&backend.QuorumError{
			Op: "release", Name: a.req.Name, Need: quorum, Votes: a.votes(),
			Reasons: []error{fmt.Errorf("%w: %w", backend.ErrLost, errForgotten)}, MayRemain: a.mayRemain(),
		})
	case free >= quorum:
		a.settleRelease(nil)
	case open == 0 && !a.release.lingers:
		// A late answer, or the repetition of a release that met an error, may
		// still make up the quorum.
		a.release.lingers = true
		time.AfterFunc(lingerFor, a.settleWithout)
		a.unlinger = context.AfterFunc(a.backend.ctx, a.settleWithout)
	}
}

// settleWithout settles a release that no quorum has confirmed by now.
func (a *attempt) settleWithout() {
	a.mu.Lock()
	defer a.unlock()
	a.settleRelease(&backend.QuorumError{
		Op: "release", Name: a.req.Name, Need: a.backend.cfg.Quorum, Votes: a.votes(),
		Reasons: []error{backend.ErrNoQuorum}, MayRemain: true,
	})
}

func (a *attempt) settleRelease(err error) {
	select {
	case <-a.release.done:
		return
	default:
	}
	if a.unlinger != nil {
		a.unlinger()
	}
	a.result = err
	close(a.release.done)
	a.backend.quit(a)
	event := backend.Event{
		Kind: backend.EventReleased, Name: a.req.Name, Token: a.token, Err: err,
		Took: a.backend.clock.Now().Sub(a.release.since),
	}
	a.later(func() { a.backend.emit(event) })
}

// Handle implements backend.Lease.
func (a *attempt) Handle() (string, error) {
	a.extendBrief()
	a.backend.noticeSleep()
	a.mu.Lock()
	if err := a.checkHeld(); err != nil {
		a.unlock()
		return "", err
	}
	a.phase = moved
	a.stop()
	time.AfterFunc(a.req.TTL, func() { a.backend.quit(a) }) // then it is over, or has another id
	a.tellExtenders(a.goneErr())
	idle := make(chan struct{})
	a.wantIdle = idle
	a.tellIdle()
	a.unlock()
	<-idle // an extension that is under way must not meet the next owner
	return backend.Handle{
		Name: a.req.Name, ID: a.id, Token: uint64(a.token), Shared: a.req.Mode == backend.Shared,
	}.Encode()
}

// extendBrief gives whoever takes over what was handed over the whole TTL for that. If it
// cannot be extended now, there is what is left of it.
func (a *attempt) extendBrief() {
	a.mu.Lock()
	brief := a.brief
	a.unlock()
	if brief {
		_ = a.Extend(context.Background()) // no longer than nodes may be silent
	}
}

// tellIdle tells Handle when nothing is under way any more.
func (a *attempt) tellIdle() {
	if a.wantIdle == nil {
		return
	}
	for i := range a.lanes {
		if a.lanes[i].task != nil || len(a.lanes[i].next) > 0 {
			return
		}
	}
	close(a.wantIdle)
	a.wantIdle = nil
}
