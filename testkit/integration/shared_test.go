package integration

import (
	"context"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
)

// readers are how many share a name on node i.
func (ns *nodes) readers(i int, name string) int64 {
	ns.t.Helper()
	n, err := ns.do(i, "ZCARD", key(name)+":readers").AsInt64()
	if err != nil {
		ns.t.Fatal(err)
	}
	return n
}

// refused demands that a writer is refused.
func refused(t *testing.T, lk *redlock.Locker, name string) {
	t.Helper()
	if l, err := lk.TryAcquire(t.Context(), name, nil); err == nil {
		release(t, l)
		t.Error("a writer is let in")
	} else {
		is(t, err, []error{redlock.ErrHeld})
	}
}

// TestB37AShorterReaderCutsNobodyShort: neither while it reads nor when it has died.
func TestB37AShorterReaderCutsNobodyShort(t *testing.T) {
	t.Parallel()
	const long, short = 5 * time.Second, time.Second
	ns := start(t, 3)
	lk := ns.open(nil)
	read := func(ttl time.Duration) *redlock.Lease {
		return take(t, lk, "x", &redlock.AcquireOptions{Mode: redlock.Shared, TTL: ttl, NoRenew: true})
	}
	began := time.Now()
	first := read(long)
	second := read(short)
	over(t, second)
	pass(2*time.Second - time.Since(began))
	refused(t, lk, "x")
	if first.Context().Err() != nil {
		t.Errorf("the first reader has lost it after %v", time.Since(began))
	}
	release(t, take(t, lk, "x", nil))
	if took := time.Since(began); took < long-slack/4 || took > long+slack {
		t.Errorf("a writer got it after %v, want %v", took, long)
	}
}

// TestB49ADeadReaderIsNotKept by one that lives.
func TestB49ADeadReaderIsNotKept(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	ns := start(t, 3)
	lk := ns.open(nil)
	take(t, ns.open(nil), "x", &redlock.AcquireOptions{Mode: redlock.Shared, TTL: ttl, NoRenew: true}) // and dies
	living := take(t, lk, "x", &redlock.AcquireOptions{Mode: redlock.Shared, TTL: ttl})
	await.True(t, undone, "all nodes have both", func() bool {
		return ns.readers(0, "x") == 2 && ns.readers(1, "x") == 2 && ns.readers(2, "x") == 2
	})
	pass(ttl + ttl/2)
	for _, i := range ns.all() {
		if n := ns.readers(i, "x"); n != 1 {
			t.Errorf("node %d: %d readers, one of them alive", i+1, n)
		}
	}
	release(t, living)
	within(t, 0, "a writer", func() { release(t, take(t, lk, "x", nil)) })
}

// TestB49NothingIsRenewedAfterTheLastRelease, however often one process had the name.
func TestB49NothingIsRenewedAfterTheLastRelease(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	ns := start(t, 3)
	lk := ns.open(nil)
	var leases []*redlock.Lease
	for range 5 {
		leases = append(leases, take(t, lk, "x", &redlock.AcquireOptions{Mode: redlock.Shared, TTL: ttl}))
	}
	renewing := ns.scripts(0)
	pass(2 * ttl)
	if n := ns.scripts(0) - renewing; n == 0 {
		t.Error("nothing is renewed while it is held: the count tells nothing")
	}
	for _, l := range leases {
		release(t, l)
	}
	ns.empty(undone, ns.all()...)
	pass(slack / 4) // what a release left under way
	for _, i := range ns.all() {
		before := ns.scripts(i)
		defer func() {
			if n := ns.scripts(i) - before; n > 0 {
				t.Errorf("node %d: %d calls after the last release", i+1, n)
			}
		}()
	}
	pass(3 * ttl)
}

// TestB50AReadLeaseIsRenewed, by itself and beside another.
func TestB50AReadLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	ns := start(t, 3)
	lk := ns.open(nil)
	for range 2 {
		l := take(t, lk, "x", &redlock.AcquireOptions{Mode: redlock.Shared, TTL: ttl})
		defer release(t, l)
		for end := time.Now().Add(3*ttl + ttl/2); time.Now().Before(end); pass(ttl / 4) {
			refused(t, lk, "x")
		}
		if l.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
	}
}
