package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// A command that has only just begun, on a busy machine: all nodes are met too late
// for the first try to take a lease over. None was asked, so there is another.
func TestResumeWhenAllNodesAreSlowToMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		handle, err := l.Handle()
		if err != nil {
			t.Fatal(err)
		}
		o, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		slow(ms, 300*time.Millisecond)
		time.AfterFunc(100*time.Millisecond, func() { slow(ms, 0) })
		next, err := o.Resume(t.Context(), handle, backend.Request{TTL: 10 * time.Second})
		if err != nil {
			t.Error(err)
		} else {
			_ = next.Release(t.Context())
		}
		_ = o.Close(t.Context())
		_ = b.Close(t.Context())
	})
}

func slow(ms []*memnode.Node, by time.Duration) {
	for _, m := range ms {
		m.Delay(by)
	}
}
