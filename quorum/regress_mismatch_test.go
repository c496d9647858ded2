package quorum

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// A node with another configuration is forgotten after a second.
func TestMismatchIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := []*memnode.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
		foreign, b := mixed(t, ms)
		ms[0].Delay(time.Millisecond)
		ms[1].Delay(time.Millisecond)
		ms[2].Delay(3 * time.Millisecond)
		req := backend.Request{Name: "x", TTL: 10 * time.Second}
		for i := range 3 {
			l, err := b.Acquire(t.Context(), req)
			if !errors.Is(err, backend.ErrMismatch) {
				t.Errorf("acquire %d: %v, want ErrMismatch", i+1, err)
			}
			if l != nil {
				_ = l.Release(t.Context())
			}
			time.Sleep(1500 * time.Millisecond)
		}
		// The operator puts it right.
		ms[2].Wipe()
		time.Sleep(1500 * time.Millisecond)
		for range 3 {
			l, err := b.Acquire(t.Context(), req)
			if err == nil {
				_ = l.Release(t.Context())
				t.Log("recovered")
				break
			}
			time.Sleep(1500 * time.Millisecond)
		}
		_ = b.Close(t.Context())
		_ = foreign.Close(t.Context())
	})
}
