package quorum

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// TestB71EachIsNearestToAnotherNode: of three clients each gets the vote of its
// own node first, and none a second one, whenever they try at the same instant.
// Time in a bubble is exact: nothing but their pauses can part them.
func TestB71EachIsNearestToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := []*memnode.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
		var clients []*Backend
		for near := range ms {
			var way []Node
			for i, m := range ms {
				d := 10 * time.Millisecond
				if i == near {
					d = time.Millisecond
				}
				way = append(way, far{Node: m.Client(), wait: d})
			}
			b, err := New(way, &Config{NodeTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, b)
		}
		clients[0].Init(t.Context(), backend.InitOptions{})
		began := time.Now()
		var served sync.WaitGroup
		for _, b := range clients {
			served.Go(func() {
				l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, Wait: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				_ = l.Release(t.Context())
			})
		}
		served.Wait()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the last of three was served after %v", took)
		}
		for _, b := range clients {
			_ = b.Close(t.Context())
		}
	})
}
