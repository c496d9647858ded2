package integration

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/clockshim"
	"example.com/redlock/testkit/redisserver"
)

// startClocked starts n servers, the last of which has a clock that the test
// moves.
func startClocked(t *testing.T, n int) (*nodes, *clockshim.Clock) {
	t.Helper()
	clock, err := clockshim.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ns := start(t, n-1)
	ns.servers = append(ns.servers, redisserver.StartWith(t, redisserver.Options{Clock: clock}))
	ns.direct = append(ns.direct, nil)
	return ns, clock
}

// contenders take and give back one name by turns, and notice when two of them
// hold it.
type contenders struct {
	holders atomic.Int32
	twice   atomic.Int32
	grants  atomic.Int32
	wg      sync.WaitGroup
}

func (c *contenders) run(ctx context.Context, lk *redlock.Locker) {
	c.wg.Go(func() {
		for ctx.Err() == nil {
			l, err := lk.Acquire(ctx, "hot", &redlock.AcquireOptions{TTL: time.Second})
			if err != nil {
				continue
			}
			if c.holders.Add(1) > 1 {
				c.twice.Add(1)
			}
			c.grants.Add(1)
			select {
			case <-l.Context().Done():
			case <-time.After(20 * time.Millisecond): // what the lock is held for
			}
			c.holders.Add(-1)
			_ = l.Release(context.Background())
		}
	})
}

// TestF42F43F44F46F47AClockOfOneNode: whatever the clock of one node of five does,
// there are never two holders, and no lease is lost; and the node is named: for a
// jump within one renewal, for a wrong rate once it is off by the threshold.
func TestF42F43F44F46F47AClockOfOneNode(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for name, tt := range map[string]struct {
		change func(*clockshim.Clock)
		within time.Duration
	}{
		"jumps ahead": {func(c *clockshim.Clock) { c.Jump(time.Minute) }, ttl / 3},
		"jumps back":  {func(c *clockshim.Clock) { c.Jump(-100 * time.Second) }, ttl / 3},
		"jumps and returns": {func(c *clockshim.Clock) {
			c.Jump(time.Hour)
			time.AfterFunc(3*time.Second, func() { c.Jump(-time.Hour) }) // or nobody may have looked
		}, ttl / 3},
		"freezes": {func(c *clockshim.Clock) { c.Freeze() }, 250*time.Millisecond + ttl/3},
		// 7 % more than is allowed make 250 ms in 3.6 s, from the first second's surest reading on.
		"runs 8 % fast": {func(c *clockshim.Clock) { c.Rate(1.08) }, 4600*time.Millisecond + ttl/3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, clock := startClocked(t, 5)
			var c contenders
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for range 3 {
				c.run(ctx, ns.open(nil))
			}
			events := &log{}
			lk := ns.open(&redlock.Options{Observer: events.observe})
			l := take(t, lk, "long", &redlock.AcquireOptions{TTL: ttl})
			await.True(t, patience, "the contenders are under way", func() bool { return c.grants.Load() > 10 })

			began := time.Now()
			tt.change(clock)
			events.await(t, redlock.EventClockMoved, "", 0)
			if took := time.Since(began); took > tt.within+slack {
				t.Errorf("named after %v, want %v", took, tt.within)
			}
			if got := events.nodes(redlock.EventClockMoved); slices.ContainsFunc(got, func(n string) bool { return n != ns.servers[4].Addr()+"/0" }) {
				t.Errorf("named: %v", got)
			}
			before := c.grants.Load()
			await.True(t, patience, "the contenders go on", func() bool { return c.grants.Load() > before+20 })
			stop()
			c.wg.Wait()
			if n := c.twice.Load(); n > 0 {
				t.Errorf("%d times two holders", n)
			}
			if l.Context().Err() != nil {
				t.Errorf("lost: %v", context.Cause(l.Context()))
			}
			release(t, l)
		})
	}
}

// TestF42NewcomersAfterAJump: a lease is on three nodes of five, and the clock of one
// of them jumps ahead, so that it ends there. Those who begin only now, one after the
// other and at once, know of the clock what the node has recorded of it.
func TestF42NewcomersAfterAJump(t *testing.T) {
	t.Parallel()
	ns, clock := startClocked(t, 5)
	lk := ns.open(nil)
	warm(t, lk)
	elsewhere := []int{2, 3}
	for _, i := range elsewhere {
		if err := ns.servers[i].Freeze(); err != nil {
			t.Fatal(err)
		}
	}
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: 30 * time.Second, NoRenew: true})
	taken := time.Now()
	await.True(t, patience, "what the frozen nodes find is too late", func() bool { return time.Since(taken) > 2*generous })
	for _, i := range elsewhere {
		if err := ns.servers[i].Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	clock.Jump(time.Minute)
	newcomer := func() {
		rival := ns.open(nil)
		stolen, err := rival.TryAcquire(context.Background(), "x", &redlock.AcquireOptions{MaxAttempts: 2})
		if err == nil {
			t.Error("two holders")
			release(t, stolen)
		}
		if err := rival.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	newcomer()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(newcomer)
	}
	wg.Wait()
	if l.Context().Err() != nil {
		t.Fatalf("the lease ended meanwhile: %v", context.Cause(l.Context()))
	}
}

// TestClocksSteadilyApart: clocks that are minutes wrong, but run well, cost no vote,
// whichever minority of the nodes is down.
func TestClocksSteadilyApart(t *testing.T) {
	t.Parallel()
	ns := start(t, 1)
	for _, off := range []time.Duration{-3 * time.Minute, 10 * time.Minute} {
		clock, err := clockshim.New(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		clock.Jump(off)
		ns.servers = append(ns.servers, redisserver.StartWith(t, redisserver.Options{Clock: clock}))
		ns.direct = append(ns.direct, nil)
	}
	events := &log{}
	o := &redlock.Options{Observer: events.observe, MaxTTL: 2 * time.Second, TTL: time.Second}
	lk := ns.open(o)
	warm(t, lk)
	for _, down := range ns.servers {
		if err := down.Freeze(); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); time.Since(began) < 3*time.Second; { // longer than a record lasts
			release(t, take(t, lk, "x", nil))
			brief := ns.open(o)
			release(t, take(t, brief, "x", nil))
			if err := brief.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if err := down.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []redlock.EventKind{redlock.EventClockMoved, redlock.EventNodeQuarantined} {
		if got := events.nodes(kind); len(got) > 0 {
			t.Errorf("%s: %v", kind, got)
		}
	}
}
