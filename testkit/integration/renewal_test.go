package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// TestB24ValidityNeedsNoNetwork: a lease that is not renewed ends by its own clock,
// with every node answering or none, and before the nodes let go of it.
func TestB24ValidityNeedsNoNetwork(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	for name, blocked := range map[string]bool{"nodes answer": false, "nodes are silent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := startProxied(t, 3)
			lk := ns.open(nil)
			warm(t, lk)
			began := time.Now()
			l := take(t, lk, "x", &redlock.AcquireOptions{TTL: ttl, NoRenew: !blocked})
			if blocked {
				ns.mode(faultproxy.ToServer, faultproxy.Swallow, ns.all()...)
				ns.mode(faultproxy.ToClient, faultproxy.Swallow, ns.all()...)
			}
			deadline := l.Deadline()
			if valid := deadline.Sub(began); valid >= ttl || valid < ttl/2 {
				t.Errorf("valid for %v of %v", valid, ttl)
			}
			// The keys outlive the validity, unless the machine kept us waiting.
			// Not by over, which looks only now and then.
			select {
			case <-l.Context().Done():
			case <-time.After(patience):
				t.Fatal("the lease does not end")
			}
			ended := time.Now()
			have := 0 // not all: the hole may have swallowed the third request
			for _, i := range ns.all() {
				if ns.ttl(i, "x") > 0 {
					have++
				}
			}
			if ended.After(deadline.Add(slack)) || ended.Before(deadline.Add(-time.Millisecond)) {
				t.Errorf("the context ended %v after the deadline", ended.Sub(deadline))
			}
			if have < 2 && time.Now().Before(began.Add(ttl)) {
				t.Error("the nodes let go before the holder knew")
			}
			is(t, context.Cause(l.Context()), []error{redlock.ErrLost})
			is(t, l.Extend(context.Background()), []error{redlock.ErrLost})
			is(t, l.Release(context.Background()), []error{redlock.ErrLost})
		})
	}
}

// TestB34RemainingTimeOnEveryNode: a TTL in the wrong unit shows here.
func TestB34RemainingTimeOnEveryNode(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		for _, ttl := range []time.Duration{5 * time.Second, longTTL} {
			t.Run(fmt.Sprintf("%d nodes, TTL %v", n, ttl), func(t *testing.T) {
				t.Parallel()
				ns := start(t, n)
				lk := ns.open(nil)
				l := take(t, lk, "x", &redlock.AcquireOptions{TTL: ttl})
				for extension := range 4 {
					for _, i := range ns.all() {
						// Not every node has answered when the quorum has.
						await.True(t, patience, "the node has it", func() bool { return ns.held(i, "x") != "" })
						var got time.Duration
						await.True(t, slack, fmt.Sprintf("PTTL on node %d after %d extensions, last %v", i+1, extension, got),
							func() bool { got = ns.ttl(i, "x"); return got <= ttl && got >= ttl-slack })
					}
					if err := l.Extend(t.Context()); err != nil {
						t.Error(err)
					}
				}
				release(t, l)
			})
		}
	}
}

// TestB39RenewalSurvivesABriefOutage: one renewal that fails ends neither the lease
// nor the renewing; and when a lease is lost for good, the next one on the same
// name is renewed like any other.
func TestB39RenewalSurvivesABriefOutage(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	ns := startProxied(t, 3)
	events := &log{}
	lk := ns.open(&redlock.Options{Observer: events.observe, NodeTimeout: 200 * time.Millisecond})
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: ttl})
	for outage := range 2 {
		failed, extended := events.count(redlock.EventExtendFailed, "x"), 0
		ns.mode(faultproxy.ToServer, faultproxy.Swallow, 0, 1)
		events.await(t, redlock.EventExtendFailed, "x", failed)
		extended = events.count(redlock.EventExtended, "x")
		ns.mode(faultproxy.ToServer, faultproxy.Pass, 0, 1)
		events.await(t, redlock.EventExtended, "x", extended+1)
		if l.Context().Err() != nil {
			t.Fatalf("outage %d ended the lease: %v", outage, context.Cause(l.Context()))
		}
	}
	for _, i := range ns.all() {
		await.True(t, patience, "the lease is on every node", func() bool { return ns.held(i, "x") != "" })
	}
	ns.mode(faultproxy.ToServer, faultproxy.Swallow, ns.all()...)
	over(t, l)
	is(t, context.Cause(l.Context()), []error{redlock.ErrLost})
	ns.mode(faultproxy.ToServer, faultproxy.Pass, ns.all()...)
	again := take(t, lk, "x", &redlock.AcquireOptions{TTL: time.Second})
	extended := events.count(redlock.EventExtended, "x")
	events.await(t, redlock.EventExtended, "x", extended+3)
	if again.Context().Err() != nil {
		t.Errorf("the second lease ended: %v", context.Cause(again.Context()))
	}
	release(t, again)
	is(t, l.Release(t.Context()), []error{redlock.ErrLost})
	ns.empty(undone, ns.all()...)
}

// TestB40BlackHole: where packets vanish without a reset the holder knows by its
// deadline, long before any socket does, and not after one failure.
func TestB40BlackHole(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	ns := startProxied(t, 5)
	events := &log{}
	lk := ns.open(&redlock.Options{Observer: events.observe, NodeTimeout: 100 * time.Millisecond})
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: ttl})
	events.await(t, redlock.EventExtended, "x", 0)
	for _, d := range []faultproxy.Direction{faultproxy.ToServer, faultproxy.ToClient} {
		ns.mode(d, faultproxy.Swallow, 0, 1, 2)
	}
	// What was on its way when the hole opened may still have counted.
	events.await(t, redlock.EventExtendFailed, "x", 0)
	if l.Context().Err() != nil {
		t.Error("one failed renewal ended the lease")
	}
	deadline := l.Deadline()
	over(t, l)
	if late := time.Since(deadline); late > slack {
		t.Errorf("the holder heard of it %v after its deadline", late)
	}
	if failures := events.count(redlock.EventExtendFailed, "x"); failures < 2 {
		t.Errorf("only %d renewals were tried", failures)
	}
	is(t, context.Cause(l.Context()), []error{redlock.ErrLost})
	within(t, generous, "the release of a lost lease", func() {
		is(t, l.Release(t.Context()), []error{redlock.ErrLost})
	})
	for _, d := range []faultproxy.Direction{faultproxy.ToServer, faultproxy.ToClient} {
		ns.mode(d, faultproxy.Pass, 0, 1, 2)
	}
	warm(t, lk)
}

// TestAMinorityOutageIsHealed: a node that was away, or that forgot, has the
// lease again after a renewal or two.
func TestAMinorityOutageIsHealed(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	events := &log{}
	lk := ns.open(&redlock.Options{Observer: events.observe})
	ns.freeze(3, 4)
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: 2 * time.Second})
	ns.thaw(3, 4)
	joined := func(which ...int) {
		for _, i := range which {
			await.True(t, patience, fmt.Sprintf("node %d has it", i+1), func() bool { return ns.held(i, "x") != "" })
		}
	}
	joined(ns.all()...)
	// A join counts from the next renewal on, and the one under way may be older.
	events.await(t, redlock.EventExtended, "x", events.count(redlock.EventExtended, "x")+1)
	ns.forget("x", 0, 1)
	joined(0, 1)
	if n := events.count(redlock.EventVanished, "x"); n != 2 {
		t.Errorf("%d of two nodes that forgot were reported", n)
	}
	if l.Context().Err() != nil {
		t.Errorf("the lease ended: %v", context.Cause(l.Context()))
	}
	release(t, l)
	ns.empty(undone, ns.all()...)
}

// TestMaxHold: the context ends, renewal stops, and nothing is released.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(nil)
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: 3 * time.Second, MaxHold: 500 * time.Millisecond})
	over(t, l)
	is(t, context.Cause(l.Context()), []error{redlock.ErrMaxHold})
	if ns.held(0, "x") == "" && time.Until(l.Deadline()) > 0 {
		t.Error("the name was freed under the holder")
	}
	is(t, l.Extend(t.Context()), []error{redlock.ErrMaxHold})
	ns.empty(3*time.Second+slack, ns.all()...)
	if err := l.Release(t.Context()); !errors.Is(err, redlock.ErrLost) {
		t.Errorf("release after the end: %v", err)
	}
}

// TestBreak: the holder may go on until its deadline and no further.
func TestBreak(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	a, b := ns.open(nil), ns.open(nil)
	l := take(t, a, "x", &redlock.AcquireOptions{TTL: 2 * time.Second})
	if err := b.Break(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
	deadline := l.Deadline()
	got := take(t, b, "x", nil)
	if time.Now().Before(deadline.Add(-slack/2)) || l.Context().Err() == nil {
		t.Errorf("the next holder came %v before the deadline of the first", time.Until(deadline))
	}
	is(t, context.Cause(l.Context()), []error{redlock.ErrLost})
	if err := b.Break(t.Context(), "x", &redlock.BreakOptions{Now: true}); err != nil {
		t.Fatal(err)
	}
	release(t, take(t, a, "x", nil))
	over(t, got)
	is(t, context.Cause(got.Context()), []error{redlock.ErrLost})
}
