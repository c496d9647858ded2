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
