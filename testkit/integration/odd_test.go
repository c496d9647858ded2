package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// TestOddNames: any bytes are a name.
func TestOddNames(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	a, b := ns.open(nil), ns.open(nil)
	for _, name := range []string{
		" ", "a b", "{", "}", "{a}b", "a\r\nSET x y", "\x00\xff\xfe", "~broken x", "*", "ключ", "node", "tokens",
		strings.Repeat("n", 512), strings.Repeat("\xff", 512),
	} {
		l := take(t, a, name, &redlock.AcquireOptions{TTL: longTTL, Owner: "o w ~ {ñ}"})
		_, err := b.TryAcquire(t.Context(), name, nil)
		is(t, err, []error{redlock.ErrHeld})
		if s, err := b.Inspect(t.Context(), name); err != nil || !s.Held || s.Owner != "o w ~ {ñ}" || s.Token != l.Token() {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
		handle, err := l.Handle()
		if err != nil {
			t.Fatal(err)
		}
		moved, err := b.Resume(t.Context(), handle, nil)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if moved.Name() != name {
			t.Errorf("%q became %q", name, moved.Name())
		}
		if err := moved.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		release(t, moved)
	}
	ns.empty(undone, ns.all()...)
}

// TestF74PlainKeys excludes, and is excluded by, clients that know nothing of us.
func TestF74PlainKeys(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(&redlock.Options{PlainKeys: true})
	l := take(t, lk, "job", nil)
	for _, i := range ns.all() {
		await.True(t, patience, "the lease is on every node", func() bool { return ns.text(i, "GET", "job") != "" })
		if got := ns.text(i, "SET", "job", "other", "NX", "PX", "1000"); got != "" {
			t.Errorf("SET NX beside our lease: %q", got)
		}
	}
	release(t, l)
	for _, i := range ns.all() {
		await.True(t, undone, "the key is gone", func() bool { return ns.text(i, "SET", "job", "other", "NX", "PX", "700") == "OK" })
	}
	_, err := lk.TryAcquire(t.Context(), "job", nil)
	is(t, err, []error{redlock.ErrHeld})
	release(t, take(t, lk, "job", nil)) // when the other's TTL is over

	for _, i := range ns.all() {
		ns.text(i, "SET", "settings", "of the application")
		if err := ns.do(i, "HSET", "hash", "f", "v").Error(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"settings", "hash"} {
		within(t, time.Second, "a key that never goes away", func() {
			_, err := lk.Acquire(t.Context(), name, nil)
			is(t, err, []error{redlock.ErrForeignKey}, redlock.ErrNoQuorum)
		})
		is(t, lk.Break(t.Context(), name, &redlock.BreakOptions{Now: true}), []error{redlock.ErrForeignKey})
	}
	for _, i := range ns.all() {
		if ns.text(i, "GET", "settings") != "of the application" || ns.text(i, "HGET", "hash", "f") != "v" {
			t.Errorf("node %d: a key that is not ours was touched", i+1)
		}
	}
}

// TestF18OutOfMemory: what is held can be kept and given back on servers that can
// store nothing more.
func TestF18OutOfMemory(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(&redlock.Options{ConnectWait: 300 * time.Millisecond})
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: 5 * time.Second})
	limit := func(bytes string) {
		for _, i := range ns.all() {
			ns.text(i, "CONFIG", "SET", "maxmemory", bytes)
		}
	}
	limit("1")
	for range 3 {
		if err := l.Extend(t.Context()); err != nil {
			t.Errorf("extend: %v", err)
		}
	}
	_, err := lk.TryAcquire(t.Context(), "y", nil)
	is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
	if !strings.Contains(fmt.Sprint(err), "OOM") {
		t.Errorf("%v does not say why", err)
	}
	release(t, l)
	ns.empty(undone, ns.all()...)
	limit("0")
	release(t, take(t, lk, "y", nil))
}

// TestAFlappingConnection: one node of three whose connection is cut all the
// time costs nobody a lease, nor an error, nor a key that stays.
func TestAFlappingConnection(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 3)
	events := &log{}
	lk := ns.open(&redlock.Options{Observer: events.observe})
	warm(t, lk)
	ctx, stop := context.WithCancel(t.Context())
	var cutter sync.WaitGroup
	cutter.Go(func() {
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-tick.C
			switch i % 3 {
			case 0:
				ns.proxies[0].Cut()
			case 1:
				ns.proxies[0].CutAfter(faultproxy.ToClient, 0)
			case 2:
				ns.proxies[0].CutAfter(faultproxy.ToServer, 100)
			}
		}
	})
	inParallel(16, 3000, func(i int) {
		name := fmt.Sprint("x", i%40)
		l := take(t, lk, name, &redlock.AcquireOptions{TTL: longTTL})
		if i%3 == 0 {
			if err := l.Extend(ctx); err != nil {
				t.Errorf("extend: %v", err)
			}
		}
		release(t, l)
	})
	stop()
	cutter.Wait()
	ns.proxies[0].CutAfter(faultproxy.ToClient, -1)
	ns.proxies[0].CutAfter(faultproxy.ToServer, -1)
	if n := events.count(redlock.EventLost, ""); n > 0 {
		t.Errorf("%d leases were lost", n)
	}
	ns.empty(undone, ns.all()...)
}

// TestF32DoubledRequests: a network that delivers each request twice changes
// nothing for acquire and extend.
func TestF32DoubledRequests(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 3)
	lk := ns.open(nil)
	warm(t, lk)
	for round := range 20 {
		each(ns, func(p *faultproxy.Proxy) { p.Duplicate(1 << 20) })
		l, err := lk.TryAcquire(t.Context(), fmt.Sprint("x", round), &redlock.AcquireOptions{TTL: longTTL, MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		each(ns, func(p *faultproxy.Proxy) { p.Duplicate(0) })
		release(t, l)
	}
	ns.empty(undone, ns.all()...)
}
