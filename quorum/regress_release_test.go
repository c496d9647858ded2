package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// counting counts operations that a node is asked.
type counting struct {
	Node
	ops *atomic.Int64
}

func (c counting) Call(ctx context.Context, call *node.Call) (*node.Reply, error) {
	for _, op := range call.Ops {
		if op.Kind == node.Release {
			c.ops.Add(1)
		}
	}
	return c.Node.Call(ctx, call)
}

// Releases pile up for a node that is down.
func TestReleasesPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ops atomic.Int64
		ms := []*memnode.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
		b, err := New([]Node{ms[0].Client(), ms[1].Client(), counting{ms[2].Client(), &ops}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		const n = 100
		var ls []backend.Lease
		for i := range n {
			l, err := b.Acquire(t.Context(), backend.Request{Name: fmt.Sprint(i), TTL: 10 * time.Second, NoRenew: true})
			if err != nil {
				t.Fatal(err)
			}
			ls = append(ls, l)
		}
		ms[2].Down(true)
		for _, l := range ls {
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1900 * time.Millisecond)
		p := b.peers[2]
		p.mu.Lock()
		queued := len(p.frees.tasks) - p.frees.head
		p.mu.Unlock()
		ms[2].Down(false)
		time.Sleep(3 * time.Second)
		t.Logf("queued %d, sent %d releases for %d leases", queued, ops.Load(), n)
		if ops.Load() > 3*n {
			t.Errorf("sent %d releases for %d leases", ops.Load(), n)
		}
		_ = b.Close(t.Context())
	})
}

type denying struct {
	Node
	on *atomic.Bool
}

func (d denying) Call(ctx context.Context, call *node.Call) (*node.Reply, error) {
	if d.on.Load() {
		return nil, &node.CallError{Denied: true, Err: errors.New("NOPERM nope")}
	}
	return d.Node.Call(ctx, call)
}

// A denied call is not ErrNotPermitted.
func TestDeniedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var on atomic.Bool
		on.Store(true)
		ms := []*memnode.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
		b, err := New([]Node{denying{ms[0].Client(), &on}, denying{ms[1].Client(), &on}, denying{ms[2].Client(), &on}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second})
		if !errors.Is(err, backend.ErrNotPermitted) {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		_ = b.Close(t.Context())
	})
}

// A caller's Canceled is lost when the backend is closed.
func TestCanceledAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := three(t, nil)
		other := b
		if _, err := other.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		res := make(chan error, 1)
		go func() { _, err := b.Acquire(ctx, backend.Request{Name: "x", TTL: 10 * time.Second}); res <- err }()
		time.Sleep(time.Second)
		cancel()
		b.close(backend.ErrClosed)
		err := <-res
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		b.cancel()
	})
}
