package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

type far struct {
	Node
	wait time.Duration
	cut  bool
}

func (f far) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	if f.cut {
		return node.HelloReply{}, &node.CallError{Err: errors.New("cut")}
	}
	return f.Node.Hello(ctx, h)
}

func (f far) Call(ctx context.Context, c *node.Call) (*node.Reply, error) {
	if f.cut {
		return nil, &node.CallError{Err: errors.New("cut")}
	}
	time.Sleep(f.wait)
	return f.Node.Call(ctx, c)
}

// Break says nil, and the holder renews for ever.
func TestBreakThatDoesNotBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ms []*memnode.Node
		var own, op []Node
		for i, name := range []string{"a", "b", "c", "d", "e"} {
			m := memnode.New(name)
			ms = append(ms, m)
			own = append(own, m.Client())
			f := far{Node: m.Client(), cut: i < 2}
			if i == 2 {
				f.wait = 100 * time.Millisecond
			}
			op = append(op, f)
		}
		b, _ := New(own, nil)
		o, _ := New(op, nil)
		b.Init(t.Context(), backend.InitOptions{})
		lost := make(chan error, 1)
		ms[3].Down(true)
		ms[4].Down(true)
		l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, Lost: func(err error) { lost <- err }})
		if err != nil {
			t.Fatal(err)
		}
		ms[3].Down(false)
		ms[4].Down(false)
		time.Sleep(time.Second)
		broke := make(chan error, 1)
		go func() { broke <- o.Break(t.Context(), "x", false) }()
		time.Sleep(20 * time.Millisecond)             // d and e have answered: absent
		if err := l.Extend(t.Context()); err != nil { // or the renewal, if it is its time
			t.Fatal(err)
		}
		err = <-broke
		time.Sleep(time.Minute)
		if lives := len(lost) == 0; lives != errors.Is(err, backend.ErrNoQuorum) {
			t.Errorf("Break said %v, and a minute later the lease lives: %v", err, lives)
		}
		_ = b.Close(t.Context())
		_ = o.Close(t.Context())
	})
}
