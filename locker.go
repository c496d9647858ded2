package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/redlock/backend"
)

// Locker takes leases from one coordination service. It is safe for use by
// many goroutines; a process needs one per service.
type Locker struct {
	backend backend.Backend
	ttl     time.Duration

	// closing ends, with ErrClosed, when Close begins.
	closing context.Context
	close   context.CancelCauseFunc

	mu     sync.Mutex
	leases map[*Lease]bool // true while a body of Do runs under it
	bodies sync.WaitGroup
}

// New returns a Locker over a backend, which it then owns. Of o only TTL
// counts; the other fields belong to the backend's own configuration, and one
// that is set here is an ErrBadOption.
func New(b backend.Backend, o *Options) (*Locker, error) {
	if o == nil {
		o = &Options{}
	}
	ttl := o.TTL
	rest := *o
	rest.TTL = 0
	if rest.Logger != nil || rest.Observer != nil || rest.hasBackendField() {
		return nil, badOption("New takes only TTL: the other options belong to the backend")
	}
	return newLocker(b, ttl)
}

// hasBackendField reports whether a field that configures a quorum is set.
func (o Options) hasBackendField() bool {
	return o.Namespace != "" || o.Cluster != "" || o.PlainKeys || o.MaxTTL != 0 || o.Quorum != 0 ||
		o.NodeTimeout != 0 || o.ConnectWait != 0 || o.DriftRate != 0 || o.DriftFloor != 0 || o.CounterOnly
}

func newLocker(b backend.Backend, ttl time.Duration) (*Locker, error) {
	if ttl == 0 {
		ttl = min(defaultTTL, b.Limits().MaxTTL)
	}
	if err := checkTTL(ttl, b.Limits()); err != nil {
		return nil, err
	}
	lk := &Locker{backend: b, ttl: ttl, leases: make(map[*Lease]bool)}
	lk.closing, lk.close = context.WithCancelCause(context.Background())
	return lk, nil
}

// Acquire takes the lease of name, waiting while others hold it. ctx bounds
// the wait only: the lease has a life of its own. Contention waits; if no
// quorum of nodes answers at all, Acquire fails with ErrNoQuorum after
// Options.ConnectWait. On failure nothing of the attempt stays behind for
// longer than its undo takes (see MayBeHeld).
//
// There is no nesting, and no upgrade from shared to exclusive: a call that would wait for
// name under the context of a lease of name fails with ErrNested at once.
func (lk *Locker) Acquire(ctx context.Context, name string, o *AcquireOptions) (*Lease, error) {
	return lk.acquire(ctx, name, o, false)
}

// TryAcquire is Acquire that does not wait for holders: it fails with ErrHeld
// if a quorum of nodes says that one other holds the name. Of several callers
// that try at the same moment, one wins.
func (lk *Locker) TryAcquire(ctx context.Context, name string, o *AcquireOptions) (*Lease, error) {
	return lk.acquire(ctx, name, o, true)
}

func (lk *Locker) acquire(ctx context.Context, name string, o *AcquireOptions, try bool) (*Lease, error) {
	r, maxHold, err := lk.request(name, o, try)
	if err == nil {
		err = lk.checkNested(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	return lk.takeNew(ctx, newLease(ctx, lk, name), r, maxHold)
}

// Resume takes over the lease that Lease.Handle moved out of this or another
// process, under a new token. It does not wait. A handle works once: a second
// Resume, or one after the lease has ended, gets ErrLost. Of o, Wait and
// MaxAttempts do not apply.
func (lk *Locker) Resume(ctx context.Context, handle string, o *AcquireOptions) (*Lease, error) {
	name, err := backend.HandleName(handle)
	if err != nil {
		return nil, err
	}
	r, maxHold, err := lk.request(name, o, true)
	if err != nil {
		return nil, err
	}
	l := newLease(ctx, lk, name)
	r.Lost = l.lost
	return lk.take(ctx, l, maxHold, func(ctx context.Context) (backend.Lease, error) {
		return lk.backend.Resume(ctx, handle, r)
	})
}

// ReleaseHandle gives back the lease that Lease.Handle moved out of this or
// another process, also one that was broken since. It fails with ErrLost if the
// lease had ended, and with ErrNoQuorum, for which MayBeHeld is true, if too few
// nodes confirmed. The handle is of no use afterwards.
func (lk *Locker) ReleaseHandle(ctx context.Context, handle string) error {
	if lk.closing.Err() != nil {
		return ErrClosed
	}
	return lk.backend.ReleaseHandle(ctx, handle)
}

// takeNew asks the backend for what r says, and makes l of it.
func (lk *Locker) takeNew(ctx context.Context, l *Lease, r backend.Request, maxHold time.Duration) (*Lease, error) {
	r.Lost = l.lost
	return lk.take(ctx, l, maxHold, func(ctx context.Context) (backend.Lease, error) {
		return lk.backend.Acquire(ctx, r)
	})
}

// take runs a backend call that yields what l is to hold, and keeps l.
func (lk *Locker) take(ctx context.Context, l *Lease, maxHold time.Duration,
	call func(context.Context) (backend.Lease, error)) (*Lease, error) {
	waitCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(lk.closing, func() { cancel(ErrClosed) })
	defer stop()

	held, err := call(waitCtx)
	if err != nil {
		l.cancel(err)
		return nil, err
	}
	l.hold(held, maxHold)
	if !lk.remember(l) {
		_ = l.Release(ctx) // what it may leave ends with the TTL
		return nil, &QuorumError{Op: "acquire", Name: l.name, Reasons: []error{ErrClosed}}
	}
	return l, nil
}

// remember keeps l for Close, unless the Locker is closed.
func (lk *Locker) remember(l *Lease) bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if lk.leases == nil {
		return false
	}
	if l.ctx.Err() == nil {
		lk.leases[l] = false
	}
	return true
}

func (lk *Locker) forget(l *Lease) {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	delete(lk.leases, l)
}

// Do takes the lease of name, runs body under it and gives it back, also when
// body panics. The body's context is a child of ctx and of the lease: it is
// cancelled, with the cause, when the lease ends. Do returns the error of body,
// joined with ErrLost or ErrMaxHold if the lease did not last as long as the
// body, and with the error of the release if there was one.
func (lk *Locker) Do(ctx context.Context, name string, o *AcquireOptions,
	body func(ctx context.Context, l *Lease) error) (err error) {
	l, err := lk.Acquire(ctx, name, o)
	if err != nil {
		return err
	}
	if !lk.enter(l) {
		return errors.Join(ErrClosed, l.Release(ctx))
	}
	defer lk.bodies.Done()
	bodyCtx, cancel := context.WithCancelCause(context.WithValue(ctx, holdingKey{}, holdingOf(l.ctx)))
	defer cancel(nil)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	defer stop()
	defer func() {
		ended := context.Cause(l.ctx)
		if errors.Is(ended, ErrReleased) || errors.Is(ended, ErrClosed) {
			ended = nil // the body's own doing, or an orderly shutdown
		}
		released := l.Release(ctx)
		if errors.Is(ended, ErrLost) && errors.Is(released, ErrLost) {
			released = nil // said already
		}
		if ended != nil || released != nil {
			err = errors.Join(err, ended, released)
		}
	}()
	return body(bodyCtx, l)
}

// enter marks that a body runs under l.
func (lk *Locker) enter(l *Lease) bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if lk.leases == nil {
		return false
	}
	if _, held := lk.leases[l]; held {
		lk.leases[l] = true
	}
	lk.bodies.Add(1)
	return true
}

// Status says who holds a name.
type Status = backend.Status

// Waiter is somebody who waits for a name.
type Waiter = backend.Waiter

// Inspect says who holds name, and who waits for it, as far as a quorum of nodes can
// tell.
func (lk *Locker) Inspect(ctx context.Context, name string) (Status, error) {
	if err := lk.checkNameOpen(name); err != nil {
		return Status{}, err
	}
	return lk.backend.Inspect(ctx, name)
}

// List says who has which of the names that match pattern, sorted by name: what
// Inspect says of each, without the names that nobody has. A lease on too few
// nodes to be held is there too, as Partial, and a key that never expires, as
// NoTTL.
//
// pattern is a glob over the bytes of a name, as Redis has it: * stands for any
// number of them, ? for one, [abc], [a-z] and [^a-z] for one of a class, and a
// backslash takes away the meaning of what follows. Empty, it matches all.
//
// The nodes look through all their keys, a page at a time, so that others are
// not kept waiting: with millions of keys it takes seconds, which ctx bounds.
// Of names taken or given back meanwhile some are listed. Nodes that do not
// answer are said in Votes; if they are too many the error is ErrNoQuorum, and
// what was found is returned with it.
func (lk *Locker) List(ctx context.Context, pattern string) ([]Status, error) {
	if lk.closing.Err() != nil {
		return nil, ErrClosed
	}
	return lk.backend.List(ctx, pattern)
}

// BreakOptions says how to break a lease.
type BreakOptions struct {
	// Now frees the name at once. The holder may still act.
	Now bool
}

// Break refuses the holder of name further extensions, so that the name is
// free by the holder's deadline, and the holder knows it in time.
func (lk *Locker) Break(ctx context.Context, name string, o *BreakOptions) error {
	if err := lk.checkNameOpen(name); err != nil {
		return err
	}
	return lk.backend.Break(ctx, name, o != nil && o.Now)
}

func (lk *Locker) checkNameOpen(name string) error {
	if lk.closing.Err() != nil {
		return ErrClosed
	}
	return lk.backend.CheckName(name)
}

// Close ends the contexts of all leases with ErrClosed, waits for the bodies of
// Do, stops renewals, releases what is held and closes the connections. ctx
// bounds it, but for a second that the releases have in any case: when it ends
// first, leases whose bodies still run are left to end with their TTL, never
// released under them, and its error is returned.
func (lk *Locker) Close(ctx context.Context) error {
	lk.close(ErrClosed)
	lk.mu.Lock()
	leases := lk.leases
	lk.leases = nil
	running := make(map[*Lease]bool, len(leases))
	for l, body := range leases {
		running[l] = body
	}
	lk.mu.Unlock()
	for l := range running {
		l.end(ErrClosed)
	}
	waited := lk.waitForBodies(ctx)
	ctx, cancel := atLeast(ctx, closeGrace)
	defer cancel()
	released := lk.releaseAll(ctx, running, waited == nil)
	return errors.Join(waited, released, lk.backend.Close(ctx))
}

// closeGrace is how long Close has for its releases although its ctx has ended:
// what ended it is often what ends the process.
const closeGrace = time.Second

// atLeast returns a context that ends with ctx, but not before d has passed.
func atLeast(ctx context.Context, d time.Duration) (context.Context, func()) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(d, func() { context.AfterFunc(ctx, cancel) })
	return out, func() {
		timer.Stop()
		cancel()
	}
}

func (lk *Locker) waitForBodies(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		lk.bodies.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("redlock: close: bodies still run: %w", ctx.Err())
	}
}

// closeWorkers bounds how many releases Close waits for side by side. It is
// large: when no node answers, each takes until it is given up.
const closeWorkers = 1024

// releaseAll releases what no body runs under, up to ctx.
func (lk *Locker) releaseAll(ctx context.Context, running map[*Lease]bool, bodiesDone bool) error {
	work := make(chan *Lease, len(running))
	for l, body := range running {
		if body && !bodiesDone {
			l.held.StopRenewal()
			continue
		}
		work <- l
	}
	close(work)
	errs := make(chan error, len(work)+1)
	var wg sync.WaitGroup
	for range min(closeWorkers, len(work)) {
		wg.Go(func() {
			for l := range work {
				if ctx.Err() != nil {
					l.held.StopRenewal()
					continue
				}
				if err := l.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
					errs <- err
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		errs <- fmt.Errorf("redlock: close: releases are still under way: %w", ctx.Err())
	}
	var all []error
	for {
		select {
		case err := <-errs:
			all = append(all, err)
		default:
			return errors.Join(all...)
		}
	}
}
