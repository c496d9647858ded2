package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
)

// Distant nodes, NodeTimeout set accordingly: Inspect and Break.
func TestInspectOfDistantNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, &Config{NodeTimeout: time.Second})
		for _, m := range ms {
			m.Delay(400 * time.Millisecond)
		}
		l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Inspect(t.Context(), "x"); err != nil {
			t.Error(err)
		}
		if err := b.Break(t.Context(), "x", false); err != nil {
			t.Error(err)
		}
		_ = l.Release(t.Context())
		_ = b.Close(t.Context())
	})
}

// The quarantine is begun by another client: ours are told all the same.
func TestRestartSeenByAnotherFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		b, ms := three(t, &Config{Observer: func(e backend.Event) {
			if e.Kind == backend.EventNodeQuarantined {
				told++
			}
		}})
		take := func(b *Backend) {
			l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // all three were asked: two suffice to win
			_ = l.Release(t.Context())
			synctest.Wait()
		}
		o, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		take(b)
		take(o)
		ms[2].Restart(false)
		take(o)
		take(b)
		if told != 1 {
			t.Errorf("told %d times", told)
		}
		_ = b.Close(t.Context())
		_ = o.Close(t.Context())
	})
}

// TestF15DataThatWentBack: a machine is put back to a snapshot, or DEBUG RELOAD
// brings old data back, under the same process. Who has seen a larger number from
// it puts it in quarantine instead of taking its vote.
func TestF15DataThatWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quarantined := make(chan string, 9)
		b, ms := three(t, &Config{Observer: func(e backend.Event) {
			if e.Kind == backend.EventNodeQuarantined {
				quarantined <- e.Node
			}
		}})
		take := func(name string) fence.Token {
			l, err := b.Acquire(t.Context(), backend.Request{Name: name, TTL: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			_ = l.Release(t.Context())
			return l.Token()
		}
		restore := ms[1].Snapshot()
		last := take("x")
		restore()
		for range 3 {
			token := take("x")
			if token <= last {
				t.Errorf("token %v after %v", token, last)
			}
			last = token
		}
		if len(quarantined) != 1 || <-quarantined != "b" {
			t.Error("the node that went back still votes")
		}
		_ = b.Close(t.Context())
	})
}
