package redlock

import (
	"context"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
)

// Lease is a name, held. There is one Lease per acquisition; it is safe for
// use by many goroutines and need not be released by the one that took it.
type Lease struct {
	locker *Locker
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	// held is set before Acquire returns the lease.
	held backend.Lease

	mu      sync.Mutex
	maxHold *time.Timer
	ended   bool // by Release, Handle or MaxHold: extensions are refused
}

// newLease returns a lease that is not held yet, with the values of ctx and a
// life of its own.
func newLease(ctx context.Context, lk *Locker, name string) *Lease {
	l := &Lease{locker: lk, name: name}
	l.ctx, l.cancel = newHolding(ctx, lk, name)
	return l
}

// hold makes the lease held.
func (l *Lease) hold(held backend.Lease, maxHold time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	if maxHold > 0 && l.ctx.Err() == nil { // it may be lost already
		l.maxHold = time.AfterFunc(maxHold, l.reachMaxHold)
	}
}

// Name returns the name that is held.
func (l *Lease) Name() string { return l.name }

// Context returns a context with the values of the one given to Acquire, which
// is cancelled when the lease ends, before anybody else can hold the name.
// context.Cause tells why: ErrLost, ErrReleased, ErrMaxHold or ErrClosed.
func (l *Lease) Context() context.Context { return l.ctx }

// Token returns the fencing token, for the guarded resource to check.
func (l *Lease) Token() fence.Token { return l.held.Token() }

// TokenByClock tells that a node which gave its vote once lost its counters, with
// too few others to tell it where to go on, and began anew at its clock: tokens
// from before that loss are smaller only if no clock was wrong by more than the
// node was away. Options.CounterOnly keeps such nodes out.
func (l *Lease) TokenByClock() bool { return l.held.TokenByClock() }

// Deadline returns the end of the validity: the holder must not act after it.
// It carries a monotonic reading and moves with each extension.
func (l *Lease) Deadline() time.Time { return l.held.Deadline() }

// Extend prolongs the lease by its TTL, counted from now. It is needed only
// with NoRenew. It fails with ErrLost if the lease had ended or a quorum no
// longer has it, and with ErrNoQuorum if too few nodes answered: then the
// lease is still held until Deadline, and Extend may be tried again.
func (l *Lease) Extend(ctx context.Context) error {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended {
		return &QuorumError{Op: "extend", Name: l.name, Reasons: []error{context.Cause(l.ctx)}}
	}
	return l.held.Extend(ctx)
}

// Release gives the name back and ends the context with ErrReleased. It
// returns nil once a quorum of nodes has confirmed; the other nodes are told
// in the background. It works on a dead ctx too, in bounded time. A repeated
// call gives the first result. The error is ErrLost if the lease had been lost
// before, and a QuorumError with ErrNoQuorum, for which MayBeHeld is true, if
// too few nodes confirmed.
func (l *Lease) Release(ctx context.Context) error {
	l.end(ErrReleased)
	defer l.locker.forget(l)
	return l.held.Release(ctx)
}

// Handle moves the lease out of this process: renewal stops, the context ends
// with ErrReleased, and the returned string is good for one Locker.Resume
// here or elsewhere until the TTL is over. The string is a secret: whoever has
// it can release the name. Release does nothing after Handle.
func (l *Lease) Handle() (string, error) {
	handle, err := l.held.Handle()
	if err != nil {
		return "", err
	}
	l.end(ErrReleased)
	l.locker.forget(l)
	return handle, nil
}

// end cancels the context because of cause and refuses further extensions.
func (l *Lease) end(cause error) {
	l.mu.Lock()
	l.ended = true
	if l.maxHold != nil {
		l.maxHold.Stop()
	}
	l.mu.Unlock()
	l.cancel(cause)
}

// lost is told by the backend that the lease has ended by itself.
func (l *Lease) lost(err error) {
	l.mu.Lock()
	if l.maxHold != nil {
		l.maxHold.Stop()
	}
	l.mu.Unlock()
	l.cancel(err)
	l.locker.forget(l)
}

func (l *Lease) reachMaxHold() {
	// Renewal ends first: a context that says ErrMaxHold must not belong to a
	// lease that is still being prolonged.
	l.held.StopRenewal()
	l.end(ErrMaxHold)
}
