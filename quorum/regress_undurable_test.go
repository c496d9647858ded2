package quorum

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// disk is a durable node, until somebody has it write no more.
type disk struct {
	*memnode.Node
	off atomic.Bool
}

func (d *disk) Examine(context.Context, node.Exam) (node.ExamReply, error) {
	enabled := "1"
	if d.off.Load() {
		enabled = "0"
	}
	return node.ExamReply{
		Info: map[string]string{"aof_enabled": enabled}, Config: map[string]string{"appendfsync": "always"},
	}, nil
}

// CONFIG SET appendonly no, and a restart that takes it back: the file has what was
// there before.
func TestADurableNodeThatWritesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Node: memnode.New("a")}
		b, err := New([]Node{d}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s := b.Init(t.Context(), backend.InitOptions{Durable: true})[0]; !s.Durable {
			t.Fatalf("%+v", s)
		}
		_ = mustTake(t, b, "x", "").Release(t.Context())
		d.off.Store(true)
		time.Sleep(fitnessEvery)
		_ = mustTake(t, b, "x", "").Release(t.Context())
		d.off.Store(false)
		d.Restart(true)
		if l, err := b.Acquire(t.Context(), backend.Request{Name: "y", TTL: time.Second, Wait: time.Second}); err == nil {
			t.Errorf("it votes at once: %v", l)
		}
		_ = b.Close(t.Context())
	})
}
