package quorum

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// A client is idle while a node restarts and sits out its quarantine. The number that
// it remembers only this node has given out, so the node begins below it. That is no
// reason for another quarantine.
func TestCountersOfAnotherLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		idle, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, &Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		_ = mustTake(t, idle, "x", "").Release(t.Context())
		countAt(t, idle, ms, 0)
		time.Sleep(time.Minute)
		ms[0].Restart(false)
		b.peers[0].recheck() // begins to watch
		time.Sleep(time.Minute)
		if !votes(t, b, 0) {
			t.Fatal("the quarantine does not end")
		}
		_ = mustTake(t, idle, "x", "").Release(t.Context())
		time.Sleep(time.Second)
		if s := b.Nodes(t.Context())[0]; s.Err != nil {
			t.Errorf("in quarantine again: %v", s.Err)
		}
		_ = b.Close(t.Context())
		_ = idle.Close(t.Context())
	})
}

// countAt has node i alone give out a number, of x, which b learns.
func countAt(t *testing.T, b *Backend, ms []*memnode.Node, i int) {
	t.Helper()
	others := func(do func(*memnode.Node)) {
		for j, m := range ms {
			if j != i {
				do(m)
			}
		}
	}
	others((*memnode.Node).Freeze)
	if _, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, MaxAttempts: 1}); err == nil {
		t.Fatal("taken with one node")
	}
	others(func(m *memnode.Node) { m.Down(true); m.Thaw(); m.Down(false) }) // what has arrived is gone
}
