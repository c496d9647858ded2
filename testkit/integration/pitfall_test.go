package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
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

// asUser makes a user with all rights on all nodes, and returns their URLs for it.
func (ns *nodes) asUser(name string) (urls []string) {
	for i, s := range ns.servers {
		ns.text(i, "ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all")
		urls = append(urls, "redis://"+name+":pw@"+s.Addr())
	}
	return urls
}

// deny takes rights from a user on all nodes.
func (ns *nodes) deny(user string, rights ...string) {
	for i := range ns.servers {
		ns.text(i, append([]string{"ACL", "SETUSER", user}, rights...)...)
	}
}

// TestALostRightToPublish: nobody is told of what the holder gives back, and those that
// wait find it by their heartbeats. From then on they tell each other.
func TestALostRightToPublish(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	urls := ns.asUser("u")
	lk := ns.open(nil)
	held := take(t, open(t, urls, nil), "x", nil)
	var waits []*wait
	for range 3 {
		waits = append(waits, standInLine(t, lk, "x", redlock.AcquireOptions{}))
	}
	ns.deny("u", "-publish")
	release(t, held)
	for left := len(waits); left > 0; left-- {
		await.True(t, time.Second+slack, fmt.Sprintf("one of %d is served", left), func() bool {
			for i, w := range waits {
				select {
				case <-w.done:
					waits = append(waits[:i:i], waits[i+1:]...)
					release(t, w.want(t, slack))
					return true
				default:
				}
			}
			return false
		})
	}
}

// TestALineThatCannotBeUsed: where nobody may publish, or listen, any more, a caller
// that waits is served by its heartbeats or learns, soon, that it has not the right;
// one that comes later learns it at once.
func TestALineThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, rights := range map[string][]string{
		"publish": {"-publish"}, "subscribe": {"-subscribe"}, "channels": {"resetchannels"}, "sorted sets": {"-@sortedset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			urls := ns.asUser("u")
			var events log
			lk := open(t, urls, &redlock.Options{Observer: events.observe})
			held := take(t, lk, "x", nil)
			w := standInLine(t, lk, "x", redlock.AcquireOptions{})
			ns.deny("u", rights...)
			events.await(t, redlock.EventNodeRefused, "", 2)
			_ = held.Release(t.Context())
			select {
			case <-w.done:
			case <-time.After(patience):
				t.Fatal("it waits in vain")
			}
			if w.err != nil {
				is(t, w.err, []error{redlock.ErrNotPermitted})
			}
			t.Logf("after %v: %v", w.took, w.err)

			late := openBlank(t, urls, &redlock.Options{NodeTimeout: generous})
			within(t, 0, "refusing", func() {
				_, err := late.Acquire(t.Context(), "y", nil)
				is(t, err, []error{redlock.ErrNotPermitted, redlock.ErrUnfit}, redlock.ErrHeld)
			})
		})
	}
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

// scripts is how many scripts node i has run.
func (ns *nodes) scripts(i int) int { return ns.calls(i, "evalsha") + ns.calls(i, "eval") }

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
