package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// TestB01NoKeyAfterAFailedAcquire: a caller whose context ends while three of five
// nodes are frozen leaves nothing on the other two, and nothing on the three
// once they go on. (the undo must not use the dead context)
func TestB01NoKeyAfterAFailedAcquire(t *testing.T) {
	t.Parallel()
	for _, warmed := range []bool{true, false} {
		t.Run(fmt.Sprintf("connected=%v", warmed), func(t *testing.T) {
			t.Parallel()
			ns := start(t, 5)
			a, b := ns.open(nil), ns.open(nil)
			warm(t, b)
			if warmed {
				warm(t, a)
				ns.empty(undone, ns.all()...)
			}
			ns.freeze(2, 3, 4)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			within(t, 100*time.Millisecond, "a failed acquire", func() {
				l, err := a.Acquire(ctx, "x", &redlock.AcquireOptions{TTL: longTTL})
				if l != nil {
					t.Error("a lease from two of five nodes")
				}
				is(t, err, []error{context.DeadlineExceeded}, redlock.ErrHeld)
			})
			ns.empty(undone, 0, 1)
			ns.thaw(2, 3, 4)
			within(t, time.Second, "the next one's acquire", func() { release(t, take(t, b, "x", nil)) })
			ns.empty(undone, ns.all()...)
		})
	}
}

// TestB01ReleaseOnADeadContext.
func TestB01ReleaseOnADeadContext(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	lk := ns.open(nil)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := lk.Acquire(ctx, "x", &redlock.AcquireOptions{TTL: longTTL})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := l.Context().Err(); err != nil {
		t.Errorf("the lease ended with the context that bounds the wait: %v", err)
	}
	if err := l.Release(ctx); err != nil {
		t.Errorf("release: %v", err)
	}
	ns.empty(undone, ns.all()...)
}

// TestF66ThreeOfFiveFrozen: an outage is ErrNoQuorum after ConnectWait, and leaves
// no key on the live nodes.
func TestF66ThreeOfFiveFrozen(t *testing.T) {
	t.Parallel()
	const connectWait = time.Second
	for name, acquire := range map[string]func(*redlock.Locker, context.Context, string, *redlock.AcquireOptions) (*redlock.Lease, error){
		"acquire": (*redlock.Locker).Acquire, "try": (*redlock.Locker).TryAcquire,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 5)
			lk := ns.open(&redlock.Options{ConnectWait: connectWait})
			warm(t, lk)
			ns.freeze(1, 2, 3)
			began := time.Now()
			within(t, connectWait, "an acquire without a quorum", func() {
				_, err := acquire(lk, t.Context(), "x", &redlock.AcquireOptions{TTL: longTTL})
				is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld, context.DeadlineExceeded, context.Canceled)
			})
			if took := time.Since(began); took < connectWait {
				t.Errorf("gave up after %v", took)
			}
			ns.empty(undone, 0, 4)
		})
	}
}

// TestB02F31SilentGrantIsUndone: a node that carried out the request but whose reply
// is lost is undone like those that said yes.
func TestB02F31SilentGrantIsUndone(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 5)
	lk := ns.open(nil)
	warm(t, lk)
	ns.occupy("x", "e", time.Minute, 3, 4)
	ns.mode(faultproxy.ToClient, faultproxy.Swallow, 0, 1, 2)
	_, err := lk.TryAcquire(t.Context(), "x", &redlock.AcquireOptions{TTL: longTTL, MaxAttempts: 1})
	is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
	if !redlock.MayBeHeld(err) {
		t.Errorf("MayBeHeld is false for %v", err)
	}
	ns.empty(undone, 0, 1, 2)
}

// TestB03UndoSurvivesTheCallerLeaving: the early return on a refusal must not cut
// short the undo on nodes that answer late.
func TestB03UndoSurvivesTheCallerLeaving(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 5)
	lk := ns.open(nil)
	warm(t, lk)
	ns.occupy("x", "e", time.Minute, 0, 1, 2)
	ns.delay(50*time.Millisecond, 3, 4)
	for _, i := range []int{3, 4} {
		await.True(t, patience, "a grant that comes after the refusals", func() bool {
			_, err := lk.TryAcquire(t.Context(), "x", &redlock.AcquireOptions{TTL: longTTL})
			is(t, err, []error{redlock.ErrHeld})
			return ns.held(i, "x") != ""
		})
	}
	ns.empty(undone, 3, 4)
	if ns.held(0, "x") == "" {
		t.Error("the undo took the holder's key")
	}
}

// TestB05ALostUndoIsRepeated: the request arrived, and both its reply and the undo
// were lost with the connection. The next attempt, by whomever, must not find
// the leftover in its way, whether or not the undo had been given up as silent
// when the connection ended.
func TestB05ALostUndoIsRepeated(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	for _, outage := range []time.Duration{0, 3 * timeout} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			ns := startProxied(t, 3)
			a, b := ns.open(&redlock.Options{NodeTimeout: timeout}), ns.open(nil)
			warm(t, a)
			warm(t, b)
			ns.empty(undone, ns.all()...)
			ns.mode(faultproxy.ToClient, faultproxy.Swallow, 1, 2)
			failed := make(chan error, 1)
			go func() {
				_, err := a.Acquire(context.Background(), "x", &redlock.AcquireOptions{TTL: longTTL, MaxAttempts: 1})
				failed <- err
			}()
			for _, i := range []int{1, 2} {
				await.True(t, patience, "the request has arrived", func() bool { return ns.held(i, "x") != "" })
			}
			ns.mode(faultproxy.ToServer, faultproxy.Swallow, 1, 2)
			is(t, <-failed, []error{redlock.ErrNoQuorum})
			pass(outage)
			ns.mode(faultproxy.ToServer, faultproxy.Pass, 1, 2)
			ns.mode(faultproxy.ToClient, faultproxy.Pass, 1, 2)
			within(t, 2*time.Second, "the next attempt", func() { release(t, take(t, b, "x", nil)) })
			ns.empty(undone, ns.all()...)
		})
	}
}

// TestB06ConnectionCutAfterTheServerRanIt: nothing is sent twice, and the
// caller does not hear of a rival that is itself.
func TestB06ConnectionCutAfterTheServerRanIt(t *testing.T) {
	t.Parallel()
	for cut := 1; cut <= 3; cut++ {
		t.Run(fmt.Sprintf("%d of 3", cut), func(t *testing.T) {
			t.Parallel()
			ns := startProxied(t, 3)
			lk := ns.open(nil)
			warm(t, lk)
			for round := range 20 {
				for i := range cut {
					ns.proxies[i].CutAfter(faultproxy.ToClient, 0)
				}
				name := fmt.Sprint("x", round)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				l, err := lk.TryAcquire(ctx, name, &redlock.AcquireOptions{TTL: longTTL, Wait: patience})
				cancel()
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				release(t, l)
			}
			ns.empty(undone, ns.all()...)
		})
	}
}

// TestB07CancelWhileTheGrantIsOnTheWire: an acquire that returns an error has left
// no renewal and no key, whenever it was cancelled.
func TestB07CancelWhileTheGrantIsOnTheWire(t *testing.T) {
	for _, rtt := range []time.Duration{0, 3 * time.Millisecond} {
		t.Run(fmt.Sprint("latency ", rtt), func(t *testing.T) {
			const rounds, parallel = 1000, 8
			ns := startProxied(t, 3)
			lk := ns.open(nil)
			warm(t, lk)
			ns.delay(rtt, ns.all()...)
			began := time.Now()
			inParallel(parallel, 10*parallel, func(i int) { release(t, take(t, lk, fmt.Sprint("y", i), nil)) })
			usual := time.Since(began) / 20 // for an acquire, half of a cycle
			var leases, failures atomic.Int64
			inParallel(parallel, rounds, func(round int) {
				ctx, cancel := context.WithCancel(context.Background())
				timer := time.AfterFunc(rand.N(2*usual), cancel)
				defer timer.Stop()
				l, err := lk.Acquire(ctx, fmt.Sprint("x", round), &redlock.AcquireOptions{TTL: longTTL})
				if (l == nil) == (err == nil) {
					t.Errorf("lease %v and error %v", l, err)
				}
				if err != nil {
					failures.Add(1)
					is(t, err, []error{context.Canceled})
					return
				}
				leases.Add(1)
				release(t, l)
			})
			t.Logf("%d leases, %d failures, an acquire takes %v", leases.Load(), failures.Load(), usual)
			if leases.Load() == 0 || failures.Load() == 0 {
				t.Error("the instants do not cover both outcomes")
			}
			closeLocker(t, lk) // the undo is over
			for _, i := range ns.all() {
				if left := ns.leases(i); len(left) > 0 {
					t.Errorf("left on node %d: %v", i+1, left)
				}
			}
		})
	}
}

// inParallel calls f for 0 … n-1 from some goroutines.
func inParallel(goroutines, n int, f func(int)) {
	work := make(chan int)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range work {
				f(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
}

// TestB08ReleaseCancelledMidFlight: the context of a release does not reach the
// nodes, and a second call gets the result of the first.
func TestB08ReleaseCancelledMidFlight(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 5)
	lk := ns.open(nil)
	warm(t, lk)
	ns.delay(20*time.Millisecond, ns.all()...)
	for round := range 20 {
		l := take(t, lk, fmt.Sprint("x", round), &redlock.AcquireOptions{TTL: longTTL})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(25*time.Millisecond))
				defer cancel()
				if err := l.Release(ctx); err != nil {
					t.Errorf("release: %v", err)
				}
			})
		}
		wg.Wait()
		release(t, l)
	}
	ns.empty(undone, ns.all()...)
}

// TestB08ReleaseWithoutAQuorum says that a key may remain, says so again, and
// frees what it can reach: at once, or when the nodes go on.
func TestB08ReleaseWithoutAQuorum(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	lk := ns.open(nil)
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	for _, i := range ns.all() {
		await.True(t, patience, "the lease is on every node", func() bool { return ns.held(i, "x") != "" })
	}
	ns.freeze(2, 3, 4)
	var first error
	within(t, generous, "a release without a quorum", func() { first = l.Release(t.Context()) })
	is(t, first, []error{redlock.ErrNoQuorum}, redlock.ErrLost, context.DeadlineExceeded)
	if !redlock.MayBeHeld(first) {
		t.Errorf("MayBeHeld is false for %v", first)
	}
	if second := l.Release(t.Context()); !errors.Is(second, first) {
		t.Errorf("the second release: %v, the first: %v", second, first)
	}
	ns.empty(undone, 0, 1)
	ns.thaw(2, 3, 4)
	ns.empty(undone, ns.all()...)
}

// TestB63ABodyNeverRunsWithoutTheLease fuzzes the instant at which a waiter's
// context ends around the instant at which the name becomes free.
func TestB63ABodyNeverRunsWithoutTheLease(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	a, b := ns.open(nil), ns.open(nil)
	warm(t, b)
	for round := range 60 {
		l := take(t, a, "x", nil)
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
		free := time.AfterFunc(rand.N(20*time.Millisecond), func() { release(t, l) })
		ran := false
		err := b.Do(ctx, "x", nil, func(ctx context.Context, lease *redlock.Lease) error {
			ran = true
			if lease == nil || lease.Context().Err() != nil || l.Context().Err() == nil {
				t.Errorf("round %d: the body runs with lease %v while the first is held", round, lease)
			}
			return nil
		})
		if ran != (err == nil) {
			t.Errorf("round %d: ran %v, error %v", round, ran, err)
		}
		if !ran {
			is(t, err, []error{context.DeadlineExceeded})
		}
		cancel()
		if free.Stop() {
			release(t, l)
		}
	}
	ns.empty(undone, ns.all()...)
}
