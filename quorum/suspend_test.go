package quorum

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/monotime"
	"example.com/redlock/memnode"
)

// TestASuspendedMachineLosesItsLeases: the process and its timers stand still
// for an hour, the nodes do not. Afterwards no call says that the lease is held,
// and its end is told within a second.
func TestASuspendedMachineLosesItsLeases(t *testing.T) {
	for _, slept := range []time.Duration{5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var asleep atomic.Int64
			b, err := New([]Node{memnode.New("a"), memnode.New("b"), memnode.New("c")},
				&Config{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			b.Init(t.Context(), backend.InitOptions{})
			b.clock = monotime.NewAsleep(func() time.Duration { return time.Duration(asleep.Load()) })
			lost := make(chan error, 2)
			request := backend.Request{
				Name: "x", TTL: 10 * time.Second, NoRenew: true, Lost: func(err error) { lost <- err },
			}
			l, err := b.Acquire(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			asleep.Add(int64(slept))
			wantLost := slept > 10*time.Second
			if err := l.Extend(t.Context()); errors.Is(err, backend.ErrLost) != wantLost {
				t.Errorf("asleep for %v: Extend says %v", slept, err)
			}
			// Another one is not asked anything.
			request.Name = "y"
			other, err := b.Acquire(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			asleep.Add(int64(time.Hour))
			time.Sleep(watchEvery + time.Millisecond)
			if left := time.Until(other.Deadline()); left > 0 {
				t.Errorf("a second after waking, %v are left", left)
			}
			if len(lost) != 2 {
				t.Errorf("the ends of %d of 2 leases were told", len(lost))
			}
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
