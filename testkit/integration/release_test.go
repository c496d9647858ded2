package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// TestB87WhatEndedTheLease: release and extend tell apart what became of a lease,
// through wrapping and joining.
func TestB87WhatEndedTheLease(t *testing.T) {
	t.Parallel()
	for _, tt := range endings() {
		for _, n := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s, %d nodes", tt.state, n), func(t *testing.T) {
				t.Parallel()
				ns := start(t, n)
				lk, other := ns.open(nil), ns.open(nil)
				for name, do := range map[string]func(*redlock.Lease, context.Context) error{
					"release": (*redlock.Lease).Release, "extend": (*redlock.Lease).Extend,
				} {
					ttl := longTTL
					if tt.state == "expired" {
						ttl = 500 * time.Millisecond
					}
					l := take(t, lk, name, &redlock.AcquireOptions{TTL: ttl, NoRenew: true})
					for _, i := range ns.all() {
						await.True(t, patience, "it is on every node", func() bool { return ns.held(i, name) != "" })
					}
					tt.prepare(ns, other, l)
					want := tt.release
					if name == "extend" {
						want = tt.extend
					}
					err := errors.Join(errors.New("more"), fmt.Errorf("wrapped: %w", do(l, context.Background())))
					wantOnly(t, name, err, want)
					if tt.state == "released and taken" {
						if s, err := lk.Inspect(t.Context(), name); err != nil || !s.Held {
							t.Errorf("%s of an old lease freed the new one: %+v, %v", name, s, err)
						}
					}
					if tt.state == "stolen" && !strings.HasPrefix(ns.held(0, name), "eeee") {
						t.Errorf("%s touched the thief's key: %q", name, ns.held(0, name))
					}
				}
			})
		}
	}
}

// ending is what may have become of a lease, and what its methods then return.
type ending struct {
	state           string
	release, extend error
	prepare         func(ns *nodes, lk *redlock.Locker, l *redlock.Lease)
}

func endings() []ending {
	return []ending{
		{"held", nil, nil, func(*nodes, *redlock.Locker, *redlock.Lease) {}},
		{"expired", redlock.ErrLost, redlock.ErrLost, func(ns *nodes, _ *redlock.Locker, l *redlock.Lease) {
			over(ns.t, l)
		}},
		{"stolen", redlock.ErrLost, redlock.ErrLost, func(ns *nodes, _ *redlock.Locker, l *redlock.Lease) {
			ns.occupy(l.Name(), "e", time.Minute, ns.all()...)
		}},
		{"vanished", redlock.ErrLost, redlock.ErrLost, func(ns *nodes, _ *redlock.Locker, l *redlock.Lease) {
			ns.forget(l.Name(), ns.all()...)
		}},
		{"released", nil, redlock.ErrReleased, func(ns *nodes, _ *redlock.Locker, l *redlock.Lease) {
			release(ns.t, l)
		}},
		{"released and taken", nil, redlock.ErrReleased, func(ns *nodes, lk *redlock.Locker, l *redlock.Lease) {
			release(ns.t, l)
			take(ns.t, lk, l.Name(), nil)
		}},
		{"moved", nil, redlock.ErrReleased, func(ns *nodes, lk *redlock.Locker, l *redlock.Lease) {
			handle, err := l.Handle()
			if err != nil {
				ns.t.Fatal(err)
			}
			if _, err := lk.Resume(context.Background(), handle, nil); err != nil {
				ns.t.Fatal(err)
			}
			_, err = lk.Resume(context.Background(), handle, nil)
			is(ns.t, err, []error{redlock.ErrLost}, redlock.ErrHeld)
		}},
		{"broken", redlock.ErrLost, redlock.ErrLost, func(ns *nodes, lk *redlock.Locker, l *redlock.Lease) {
			if err := lk.Break(context.Background(), l.Name(), &redlock.BreakOptions{Now: true}); err != nil {
				ns.t.Fatal(err)
			}
		}},
	}
}

// wantOnly fails unless err is want, nil for none, and none of the others.
func wantOnly(t testing.TB, what string, err, want error) {
	t.Helper()
	for _, sentinel := range []error{
		redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrLost, redlock.ErrReleased, redlock.ErrMaxHold,
		redlock.ErrClosed, redlock.ErrMismatch, redlock.ErrUnfit, redlock.ErrForeignKey, redlock.ErrBadOption,
	} {
		if errors.Is(err, sentinel) != (sentinel == want) {
			t.Errorf("%s: %v, want %v only", what, err, want)
		}
	}
	var q *redlock.QuorumError
	if want != nil && !errors.As(err, &q) {
		t.Errorf("%s: %v holds no QuorumError", what, err)
	}
}

// TestB102OwnershipIsTheHandle: whoever has the lease may release it, in another
// goroutine or another process.
func TestB102OwnershipIsTheHandle(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	lk := ns.open(nil)
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	released := make(chan error)
	go func() { released <- l.Release(context.Background()) }()
	if err := <-released; err != nil {
		t.Error(err)
	}
	ns.empty(undone, ns.all()...)

	l = take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	handle, err := l.Handle()
	if err != nil {
		t.Fatal(err)
	}
	is(t, context.Cause(l.Context()), []error{redlock.ErrReleased})
	_, out := ns.spawn(roleRelease, handleEnv+"="+handle)
	var token uint64
	if _, err := fmt.Sscan(line(t, out), &token); err != nil || token <= uint64(l.Token()) {
		t.Errorf("the other process has token %d, %v, after %d", token, err, l.Token())
	}
	ns.empty(undone+slack, ns.all()...)
	_, err = lk.Resume(t.Context(), handle, nil)
	is(t, err, []error{redlock.ErrLost}, redlock.ErrHeld)
	if strings.Contains(fmt.Sprint(err), handle) {
		t.Error("the error tells the handle")
	}
}

// TestB125CloseFreesAll: a hundred leases do not have to wait for their TTL, also if
// a connection breaks under their releases.
func TestB125CloseFreesAll(t *testing.T) {
	t.Parallel()
	const leases = 100
	for name, disturb := range map[string]func(ns *nodes){
		"all is well":               func(*nodes) {},
		"a connection is cut":       func(ns *nodes) { ns.proxies[0].CutAfter(faultproxy.ToServer, 0) },
		"a reply is cut":            func(ns *nodes) { ns.proxies[0].CutAfter(faultproxy.ToClient, 0) },
		"all connections were cut":  func(ns *nodes) { each(ns, (*faultproxy.Proxy).Cut) },
		"a node answers after 50ms": func(ns *nodes) { ns.delay(50*time.Millisecond, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := startProxied(t, 3)
			lk := ns.open(nil)
			var held []*redlock.Lease
			for i := range leases {
				held = append(held, take(t, lk, fmt.Sprint("x", i), &redlock.AcquireOptions{TTL: longTTL}))
			}
			for _, i := range ns.all() {
				await.True(t, patience, "all are on every node", func() bool { return len(ns.leases(i)) == leases })
			}
			disturb(ns)
			within(t, time.Second, "close", func() {
				// A release that met an error is repeated, but its result is known.
				if err := lk.Close(context.Background()); err != nil && name != "all connections were cut" {
					t.Errorf("close: %v", err)
				}
			})
			for _, i := range ns.all() {
				if left := len(ns.leases(i)); left > 0 {
					t.Errorf("close left %d leases on node %d", left, i+1)
				}
			}
			for _, l := range held {
				is(t, context.Cause(l.Context()), []error{redlock.ErrClosed})
			}
			_, err := lk.Acquire(t.Context(), "y", nil)
			is(t, err, []error{redlock.ErrClosed})
		})
	}
}

func each(ns *nodes, f func(*faultproxy.Proxy)) {
	for _, p := range ns.proxies {
		f(p)
	}
}

// TestB127CloseWaitsForBodies, and frees what they held after they have ended.
func TestB127CloseWaitsForBodies(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(nil)
	inside := make(chan struct{})
	finish := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- lk.Do(context.Background(), "x", nil, func(ctx context.Context, l *redlock.Lease) error {
			close(inside)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, redlock.ErrClosed) {
				t.Errorf("cause %v", cause)
			}
			<-finish
			if ns.held(0, "x") == "" || time.Until(l.Deadline()) < 0 {
				t.Error("the name was freed under the body")
			}
			return nil
		})
	}()
	<-inside
	waiter := make(chan error, 1)
	go func() { _, err := lk.Acquire(context.Background(), "x", nil); waiter <- err }()
	closed := make(chan error, 1)
	go func() { closed <- lk.Close(context.Background()) }()
	is(t, <-waiter, []error{redlock.ErrClosed})
	select {
	case err := <-closed:
		t.Errorf("close did not wait for the body: %v", err)
	default:
	}
	close(finish)
	if err := <-done; err != nil {
		t.Errorf("do: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	ns.empty(0, ns.all()...)
}

// TestCloseIsBounded: a body that does not end keeps its lease, and Close says so.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(nil)
	inside, finish := make(chan struct{}), make(chan struct{})
	var body sync.WaitGroup
	body.Go(func() {
		_ = lk.Do(context.Background(), "x", nil, func(context.Context, *redlock.Lease) error {
			close(inside)
			<-finish
			return nil
		})
	})
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	within(t, 100*time.Millisecond, "close", func() {
		is(t, lk.Close(ctx), []error{context.DeadlineExceeded})
	})
	if ns.held(0, "x") == "" {
		t.Error("the name was freed under the body")
	}
	close(finish)
	body.Wait()
}

// TestCloseDuringAcquires: whatever is under way ends with ErrClosed and leaves
// nothing.
func TestCloseDuringAcquires(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 3)
	ns.delay(2*time.Millisecond, ns.all()...)
	ns.open(nil) // declares them
	for round := range 30 {
		lk, err := redlock.Open(t.Context(), ns.urls(), &redlock.Options{NodeTimeout: generous, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		warm(t, lk)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				l, err := lk.Acquire(context.Background(), fmt.Sprint(round, i), &redlock.AcquireOptions{TTL: longTTL})
				if (l == nil) == (err == nil) {
					t.Errorf("lease %v and error %v", l, err)
				}
				if err != nil {
					is(t, err, []error{redlock.ErrClosed}, redlock.ErrNoQuorum)
				}
			})
		}
		pass(time.Duration(round) * 200 * time.Microsecond)
		closeLocker(t, lk)
		wg.Wait()
	}
	ns.empty(undone, ns.all()...)
}

// TestReleaseWhoseReplyWasCut: the release is repeated, finds nothing, and that
// is its own doing, not the loss of the lease.
func TestReleaseWhoseReplyWasCut(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 3)
	lk := ns.open(nil)
	warm(t, lk)
	ns.kill(2)
	for round := range 5 {
		l := take(t, lk, fmt.Sprint("x", round), &redlock.AcquireOptions{TTL: longTTL})
		ns.proxies[0].CutAfter(faultproxy.ToClient, 0)
		ns.delay(200*time.Millisecond, 1)
		release(t, l)
		ns.delay(0, 1)
	}
	ns.empty(undone, 0, 1)
}
