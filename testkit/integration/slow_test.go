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
)

// TestB57OneFrozenOfFive: no operation waits for it, not the first one either, and
// not without a deadline of the caller's.
func TestB57OneFrozenOfFive(t *testing.T) {
	t.Parallel()
	for _, connected := range []bool{true, false} {
		t.Run(fmt.Sprintf("connected=%v", connected), func(t *testing.T) {
			t.Parallel()
			ns := start(t, 5)
			lk := openAsIs(t, ns.urls(), &redlock.Options{})
			if connected {
				warm(t, lk)
			}
			ns.freeze(1)
			for round := range 10 {
				// Default options: the node timeout is 50 ms at a TTL of 10 s.
				within(t, 50*time.Millisecond, "lock, extend and unlock", func() {
					l := take(t, lk, fmt.Sprint("x", round), nil)
					if err := l.Extend(context.Background()); err != nil {
						t.Error(err)
					}
					release(t, l)
				})
			}
			ns.thaw(1)
			ns.empty(undone, ns.all()...)
		})
	}
}

// TestB58TheCallersDeadlineCutsASlowNode: whatever the node's timeout is.
func TestB58TheCallersDeadlineCutsASlowNode(t *testing.T) {
	t.Parallel()
	const deadline, answer = 50 * time.Millisecond, 4 * time.Second
	ns := startProxied(t, 1)
	lk := ns.open(&redlock.Options{NodeTimeout: 5 * time.Second, TTL: longTTL})
	warm(t, lk)
	l := take(t, lk, "held", nil)
	ns.delay(answer, 0)
	timed := func(what string, f func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		within(t, deadline, what, func() {
			err := f(ctx)
			is(t, err, []error{context.DeadlineExceeded}, redlock.ErrHeld)
		})
	}
	timed("acquire", func(ctx context.Context) error { _, err := lk.Acquire(ctx, "x", nil); return err })
	timed("try", func(ctx context.Context) error { _, err := lk.TryAcquire(ctx, "x", nil); return err })
	timed("do", func(ctx context.Context) error { return lk.Do(ctx, "x", nil, nil) })
	timed("extend", func(ctx context.Context) error { return l.Extend(ctx) })
	timed("inspect", func(ctx context.Context) error { _, err := lk.Inspect(ctx, "x"); return err })
	timed("resume", func(ctx context.Context) error {
		_, err := lk.Resume(ctx, "rl1.eyJuIjoiZUE9PSIsImkiOiIwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZiIsInQiOjF9", nil)
		return err
	})
	ns.delay(0, 0)
	release(t, l)
	ns.empty(answer+undone, 0)
}

// TestB60WhyTheWaitWasOver: cancelled, timed out and held are told apart, and found
// together where both are true.
func TestB60WhyTheWaitWasOver(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(nil)
	l := take(t, ns.open(nil), "x", nil)
	cause := errors.New("the caller's reason")
	for name, tt := range map[string]struct {
		end  func(context.Context) (context.Context, context.CancelFunc)
		o    redlock.AcquireOptions
		want []error
		not  []error
	}{
		"cancelled": {cancelled(nil), redlock.AcquireOptions{},
			[]error{context.Canceled, redlock.ErrHeld}, []error{context.DeadlineExceeded}},
		"cancelled with a cause": {cancelled(cause), redlock.AcquireOptions{},
			[]error{context.Canceled, redlock.ErrHeld, cause}, []error{context.DeadlineExceeded}},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		}, redlock.AcquireOptions{}, []error{context.DeadlineExceeded, redlock.ErrHeld}, []error{context.Canceled}},
		"wait": {context.WithCancel, redlock.AcquireOptions{Wait: 100 * time.Millisecond},
			[]error{redlock.ErrHeld}, []error{context.DeadlineExceeded, context.Canceled}},
		"no wait": {context.WithCancel, redlock.AcquireOptions{Wait: redlock.NoWait},
			[]error{redlock.ErrHeld}, []error{context.DeadlineExceeded, context.Canceled}},
		"attempts": {context.WithCancel, redlock.AcquireOptions{MaxAttempts: 3},
			[]error{redlock.ErrHeld}, []error{context.DeadlineExceeded, context.Canceled}},
		"dead before": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, redlock.AcquireOptions{}, []error{context.Canceled}, []error{redlock.ErrNoQuorum, context.DeadlineExceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := tt.end(t.Context())
			defer cancel()
			within(t, 100*time.Millisecond, "the wait", func() {
				got, err := lk.Acquire(ctx, "x", &tt.o)
				if got != nil {
					t.Errorf("a lease besides %v", err)
				}
				is(t, err, tt.want, append(tt.not, redlock.ErrNoQuorum)...)
			})
		})
	}
	release(t, l)
}

// cancelled returns a maker of contexts that end at some instant while waiting.
func cancelled(cause error) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(50*time.Millisecond+rand.N(50*time.Millisecond), func() { cancel(cause) })
		return ctx, func() { cancel(nil) }
	}
}

// TestCancelDuringThePause: a pause between attempts is no reason to come late.
// One that is waited for costs a quarter of a second on average; so many of them
// stand out from what a busy machine adds.
func TestCancelDuringThePause(t *testing.T) {
	t.Parallel()
	const waiters, pauses = 32, 12 // later pauses are longer
	ns := start(t, 1)
	lk := ns.open(nil)
	l := take(t, ns.open(nil), "x", &redlock.AcquireOptions{TTL: longTTL})
	var late atomic.Int64
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var cancelledAt time.Time
			tries := 0
			_, err := lk.Acquire(ctx, "x", &redlock.AcquireOptions{OnWait: func(redlock.Wait) {
				if tries++; tries == pauses {
					cancelledAt = time.Now()
					cancel()
				}
			}})
			late.Add(int64(time.Since(cancelledAt)))
			is(t, err, []error{context.Canceled, redlock.ErrHeld})
		})
	}
	wg.Wait()
	if sum := time.Duration(late.Load()); sum > slack {
		t.Errorf("%d cancelled callers were told %v late, together", waiters, sum)
	}
	release(t, l)
}
