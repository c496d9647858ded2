package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// votes reports whether a node votes, as far as b can tell.
func votes(t *testing.T, b *Backend, i int) bool {
	t.Helper()
	return b.Nodes(t.Context())[i].Err == nil
}

// A node that answers nothing must not keep another in quarantine: it cannot say
// what it has given out, and must not use up the time for the others.
func TestASilentNodeKeepsNobodyInQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ms []*memnode.Node
		var nodes []Node
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			m := memnode.New(name)
			ms, nodes = append(ms, m), append(nodes, m.Client())
		}
		b, err := New(nodes, &Config{MaxTTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		b.Init(t.Context(), backend.InitOptions{})
		ms[0].Restart(true)
		ms[4].Freeze()
		l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3020*time.Millisecond + 2*time.Second)
		if !votes(t, b, 0) {
			t.Error("the restarted node does not vote after its quarantine")
		}
		ms[4].Thaw()
		_ = l.Release(t.Context())
		_ = b.Close(t.Context())
	})
}

// Nodes that forget one after the other, while none can be spared, sit out side by
// side.
func TestQuarantinesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		take := func() {
			l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Release(t.Context())
		}
		take()
		begin := time.Now()
		for i, m := range ms {
			time.AfterFunc(time.Duration(i)*5*time.Second, m.Wipe)
		}
		time.Sleep(time.Second)
		take() // two still vote
		time.Sleep(5 * time.Second)
		take() // waits, and finds that the third forgets as well
		const q, looks = 45300 * time.Millisecond, 10 * time.Second
		if took := time.Since(begin); took > 10*time.Second+q+looks+2*time.Second {
			t.Errorf("the service is back after %v", took)
		}
		time.Sleep(looks)
		for i := range ms {
			if !votes(t, b, i) {
				t.Errorf("node %d does not vote", i)
			}
		}
		_ = b.Close(t.Context())
	})
}

// Counters that once began at a clock are counters since: CounterOnly takes a floor
// from nodes that have them.
func TestCounterOnlyAfterClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, &Config{CounterOnly: true, MaxTTL: 2 * time.Second})
		for _, m := range ms {
			m.Restart(true)
		}
		for _, s := range b.Init(t.Context(), backend.InitOptions{Force: true}) {
			if s.Err != nil || !s.ByClock {
				t.Fatalf("%+v", s)
			}
		}
		ms[0].Restart(true)
		for range 8 {
			l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			_ = l.Release(t.Context())
			time.Sleep(time.Second)
		}
		if !votes(t, b, 0) {
			t.Error("a node that the others could tell their counters stays out")
		}
		_ = b.Close(t.Context())
	})
}
