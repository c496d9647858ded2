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

// A machine is put back to a snapshot while nobody uses the node. The first call
// meets it, and goes together with the greeting that was due: what the call found
// out must not be lost with the answer to the greeting.
func TestSuspicionOutlivesAGreetingUnderWay(t *testing.T) {
	for _, by := range []time.Duration{0, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			a, b, c := memnode.New("a:1/0"), memnode.New("b:2/0"), memnode.New("c:3/0")
			late := &lateHello{Node: a.Client()}
			q, err := New([]Node{late, b.Client(), c.Client()}, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Init(t.Context(), backend.InitOptions{})
			putBack := a.Snapshot()
			_ = mustTake(t, q, "x", "").Release(t.Context())
			time.Sleep(fitnessEvery)
			putBack()
			a.Delay(time.Millisecond)
			late.by.Store(int64(by))
			l := mustTake(t, q, "x", "")
			time.Sleep(time.Second)
			if votes(t, q, 0) {
				t.Errorf("the greeting late by %v: a node that went back in time votes", by)
			}
			_ = l.Release(t.Context())
			_ = q.Close(t.Context())
		})
	}
}

// lateHello is a node whose answers to a hello are late.
type lateHello struct {
	Node
	by atomic.Int64
}

func (l *lateHello) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	r, err := l.Node.Hello(ctx, h)
	time.Sleep(time.Duration(l.by.Load()))
	return r, err
}
