package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/redlock"
)

// wait is a caller that stands in line.
type wait struct {
	began time.Time
	took  time.Duration
	lease *redlock.Lease
	err   error
	done  chan struct{}
}

// standInLine has a caller wait for a name that is held, and returns once it does.
func standInLine(t *testing.T, lk *redlock.Locker, name string, o redlock.AcquireOptions) *wait {
	t.Helper()
	w, stands := &wait{began: time.Now(), done: make(chan struct{})}, make(chan struct{}, 1)
	o.OnWait = func(e redlock.Wait) {
		if e.Position >= 0 {
			select {
			case stands <- struct{}{}:
			default:
			}
		}
	}
	go func() {
		defer close(w.done)
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		w.lease, w.err = lk.Acquire(ctx, name, &o)
		w.took = time.Since(w.began)
	}()
	select {
	case <-stands:
	case <-w.done:
		t.Fatalf("it does not wait: %v", w.err)
	case <-time.After(patience):
		t.Fatal("it does not stand in line")
	}
	return w
}

// want waits for a lease.
func (w *wait) want(t *testing.T, within time.Duration) *redlock.Lease {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(within):
		t.Fatalf("waits for longer than %v", within)
	}
	if w.err != nil {
		t.Fatal(w.err)
	}
	return w.lease
}

// TestB98AnyNamespace: what a namespace is made of is nobody's business, on the channel of
// the line neither.
func TestB98AnyNamespace(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	for _, namespace := range []string{"a:b:", "a:b", ":", "a*", "wake:", "[a]"} {
		lk := ns.open(&redlock.Options{Namespace: namespace})
		held := take(t, lk, "x", nil)
		var waits []*wait
		for range 3 {
			waits = append(waits, standInLine(t, lk, "x", redlock.AcquireOptions{}))
		}
		began := time.Now()
		release(t, held)
		for _, w := range waits {
			release(t, w.want(t, slack))
		}
		// Without the pushes, each would find its turn by the heartbeat of a second.
		if took := time.Since(began); took > time.Second {
			t.Errorf("%q: handed over within %v", namespace, took)
		}
	}
}

// TestB62AWaitInLineIsBounded.
func TestB62AWaitInLineIsBounded(t *testing.T) {
	t.Parallel()
	const bound = 250 * time.Millisecond
	ns := start(t, 3)
	lk := ns.open(nil)
	held := take(t, lk, "x", nil)
	w := standInLine(t, lk, "x", redlock.AcquireOptions{Wait: bound})
	select {
	case <-w.done:
	case <-time.After(patience):
		t.Fatal("it waits in vain")
	}
	is(t, w.err, []error{redlock.ErrHeld}, redlock.ErrNoQuorum)
	if w.took < bound || w.took > bound+slack {
		t.Errorf("waited for %v", w.took)
	}
	release(t, held)
	ns.empty(undone, ns.all()...)
}

// TestB64StoppedServersUnderTheLine: nothing waits for a server that does not answer,
// neither a caller that stands in line or comes to it, nor Close.
func TestB64StoppedServersUnderTheLine(t *testing.T) {
	t.Parallel()
	const bound = time.Second
	for _, stopped := range []int{1, 3} {
		t.Run(fmt.Sprint(stopped), func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			lk, err := redlock.Open(t.Context(), ns.urls(), &redlock.Options{NodeTimeout: generous, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			declare(t, lk)
			take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL, NoRenew: true})
			w := standInLine(t, lk, "x", redlock.AcquireOptions{})
			ns.freeze(ns.all()[:stopped]...)
			defer ns.thaw(ns.all()[:stopped]...)
			within(t, bound, "a wait", func() {
				ctx, cancel := context.WithTimeout(t.Context(), bound)
				defer cancel()
				l, err := lk.Acquire(ctx, "x", nil)
				is(t, err, []error{context.DeadlineExceeded})
				if l != nil {
					t.Error("a lease")
				}
			})
			select {
			case <-w.done:
				t.Errorf("it does not wait any more: %v", w.err)
			default:
			}
			within(t, bound, "close", func() {
				ctx, cancel := context.WithTimeout(t.Context(), bound)
				defer cancel()
				_ = lk.Close(ctx)
				<-w.done
			})
			is(t, w.err, []error{redlock.ErrClosed})
		})
	}
}
