package quorum

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// TestB27NoWallClockDecidesHowLongALeaseLasts: the client's wall clock is off by
// a minute or by years, and is set while a lease is held. Neither what the nodes
// store nor the validity notices, and tokens still grow.
func TestB27NoWallClockDecidesHowLongALeaseLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := []*memnode.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
		b, err := New([]Node{servers[0], servers[1], servers[2]}, &Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		b.Init(t.Context(), backend.InitOptions{})
		off := time.Duration(0)
		b.wall = func() time.Time { return time.Now().Add(off) }
		var last uint64
		for _, off = range []time.Duration{0, time.Minute, -time.Minute, 30 * 365 * 24 * time.Hour, -time.Hour} {
			l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, NoRenew: true})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, s := range servers {
				if _, ttl, _ := s.Get("redlock:{x}"); ttl != 10*time.Second {
					t.Errorf("clock off by %v: a node keeps it for %v", off, ttl)
				}
			}
			before := l.Deadline()
			off -= 2 * time.Hour
			if after := l.Deadline(); after != before {
				t.Errorf("clock set while held: the deadline moved by %v", after.Sub(before))
			}
			if uint64(l.Token()) <= last {
				t.Errorf("clock off by %v: token %d after %d", off, l.Token(), last)
			}
			last = uint64(l.Token())
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
