package quorum

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/monotime"
	"example.com/redlock/memnode"
)

// The machine was suspended, and the first that is heard of a node is the answer to
// a greeting: its connection broke, or it was time to ask again. Its clock has not
// moved.
func TestSleepNoticedByAGreeting(t *testing.T) {
	for _, broken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var asleep atomic.Int64
			log := &eventLog{}
			b, ms := three(t, &Config{Observer: log.observe})
			b.clock = monotime.NewAsleep(func() time.Duration { return time.Duration(asleep.Load()) })
			_ = mustTake(t, b, "warm", "").Release(t.Context())
			time.Sleep(fitnessEvery)
			each := func(do func(*memnode.Node)) {
				for _, m := range ms {
					do(m)
				}
			}
			if broken {
				each(func(m *memnode.Node) { m.Down(true) })
				_, _ = b.Acquire(t.Context(), backend.Request{Name: "y", TTL: 10 * time.Second, MaxAttempts: 1})
				each(func(m *memnode.Node) { m.Down(false) })
				ms[2].Down(true) // so that not all clocks seem to have moved
			}
			asleep.Add(int64(time.Hour))
			each(func(m *memnode.Node) { m.ShiftClock(time.Hour) })
			time.Sleep(time.Second)
			l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, Wait: 5 * time.Second})
			if err != nil {
				t.Errorf("connections broken %v: %v", broken, err)
			} else {
				_ = l.Release(t.Context())
			}
			synctest.Wait()
			for _, e := range log.take() {
				if e.Kind == backend.EventClockMoved {
					t.Errorf("connections broken %v: %s: %v", broken, e.Node, e.Err)
				}
			}
			_ = b.Close(t.Context())
		})
	}
}
