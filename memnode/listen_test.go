package memnode

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/internal/node"
)

const (
	waiter = "11111111111111111111111111111111"
	client = "22222222222222222222222222222222"
)

// heard is what a Listen under way has said.
type heard struct {
	ready  int
	pushes []node.Push
	ended  error
}

// listen has the client listen until ctx ends.
func listen(ctx context.Context, l interface {
	Listen(context.Context, node.Keyspace, string, func(), func(node.Push)) error
}) *heard {
	h := &heard{}
	go func() {
		h.ended = l.Listen(ctx, keys, client, func() { h.ready++ }, func(p node.Push) { h.pushes = append(h.pushes, p) })
	}()
	synctest.Wait()
	return h
}

// handOver has the waiter stand behind a holder, who releases. It returns who has
// the name then.
func handOver(t *testing.T, do func(context.Context, node.Op) (node.Answer, error)) string {
	t.Helper()
	a, err := do(t.Context(), acquire(idA))
	wantCode(t, a, err, node.Granted)
	a, err = do(t.Context(), node.Op{Kind: node.Wait, ID: idB, TTL: 10_000, Place: node.Place{Waiter: waiter, Client: client, Beat: 1}})
	wantCode(t, a, err, node.Held)
	a, err = do(t.Context(), node.Op{Kind: node.Release, ID: idA})
	wantCode(t, a, err, node.Done)
	synctest.Wait()
	a, err = do(t.Context(), node.Op{Kind: node.Inspect})
	if err != nil {
		t.Fatal(err)
	}
	return a.Holder
}

func TestListenHearsOfItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, do := started(t)
		ctx, cancel := context.WithCancel(t.Context())
		h, other := listen(ctx, n), listen(ctx, n)
		if h.ready != 1 || handOver(t, do) != idB {
			t.Error("the name was not handed over")
		}
		for _, h := range []*heard{h, other} {
			if len(h.pushes) != 1 || h.pushes[0].Waiter != waiter || h.pushes[0].ID != idB || h.pushes[0].Name != "x" {
				t.Errorf("heard %+v", h.pushes)
			}
		}
		cancel()
		synctest.Wait()
		wantError(t, h.ended, context.Canceled, true)
		a, err := do(t.Context(), node.Op{Kind: node.Release, ID: idB})
		wantCode(t, a, err, node.Done)
		if holder := handOver(t, do); holder != "" {
			t.Errorf("handed to %s, for whom nobody listens", holder)
		}
	})
}

func TestDroppedPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, do := started(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h := listen(ctx, n)
		n.DropPushes(true)
		if holder := handOver(t, do); holder != idB || len(h.pushes) != 0 {
			t.Errorf("%s holds, heard %+v", holder, h.pushes)
		}
	})
}

func TestListenersAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := started(t)
		c := n.Client()
		for _, cut := range []func(){
			n.CutListeners, func() { n.Restart(true) }, func() { n.Down(true); n.Down(false) },
		} {
			h := listen(t.Context(), c)
			cut()
			synctest.Wait()
			wantError(t, h.ended, ErrReset, true)
			if len(n.listeners) != 0 {
				t.Error("a listener is left")
			}
		}
		h, other := listen(t.Context(), c), listen(t.Context(), n)
		c.Close()
		synctest.Wait()
		wantError(t, h.ended, context.Canceled, true)
		n.Close()
		synctest.Wait()
		wantError(t, other.ended, ErrClosed, true)
	})
}

func TestListenToAFrozenNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := started(t)
		n.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h := listen(ctx, n)
		<-ctx.Done()
		synctest.Wait()
		n.Thaw()
		wantError(t, h.ended, context.DeadlineExceeded, true)
		if h.ready != 0 || len(n.listeners) != 0 {
			t.Errorf("ready %d, %d listen", h.ready, len(n.listeners))
		}
	})
}
