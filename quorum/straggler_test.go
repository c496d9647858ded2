package quorum

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// straggling holds acquires back once their callers may have given up, and
// carries them out 3 s later, behind the release, as a server does with what
// was left on a connection that was abandoned.
type straggling struct{ Node }

func (s straggling) Call(ctx context.Context, c *node.Call) (*node.Reply, error) {
	if !slices.ContainsFunc(c.Ops, func(op node.Op) bool { return op.Kind == node.Acquire }) {
		return s.Node.Call(ctx, c)
	}
	time.AfterFunc(3*time.Second, func() { _, _ = s.Node.Call(context.Background(), c) })
	<-ctx.Done()
	return nil, &node.CallError{Sent: true, Err: ctx.Err()}
}

// F33, F35: the node must not grant what its caller has given up and released.
func TestF33F35AStragglerBehindItsReleaseIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memnode.New("a")
		b, err := New([]Node{straggling{server.Client()}}, &Config{ConnectWait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		b.Init(t.Context(), backend.InitOptions{})
		_, err = b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 30 * time.Second, NoWait: true})
		if !errors.Is(err, backend.ErrNoQuorum) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if value, left, ok := server.Get("redlock:{x}"); ok {
			t.Errorf("%q stays for %v", value, left)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
