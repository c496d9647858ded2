package quorum

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// Our own clock stood still for a moment. The first round meets a majority of the
// nodes, whose clocks seem to have leapt, and is lost before the others are asked. That
// theirs leapt alike comes out all the same, and at once.
func TestOwnClockIsToldFromThoseOfTheFirstNodes(t *testing.T) {
	for _, n := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			b, ms := some(t, n, &Config{Logger: slog.New(slog.DiscardHandler)})
			_ = mustTake(t, b, "x", "").Release(t.Context())
			time.Sleep(time.Second)
			for _, m := range ms {
				m.ShiftClock(time.Second)
			}
			begun := time.Now()
			_ = mustTake(t, b, "y", "").Release(t.Context())
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%d nodes: the lock was free, and taken after %v", n, took)
			}
			_ = b.Close(t.Context())
		})
	}
}

// some returns n nodes in memory and a backend over them, declared.
func some(t *testing.T, n int, c *Config) (*Backend, []*memnode.Node) {
	t.Helper()
	var nodes []Node
	var ms []*memnode.Node
	for i := range n {
		m := memnode.New(fmt.Sprint(i))
		ms, nodes = append(ms, m), append(nodes, m.Client())
	}
	b, err := New(nodes, c)
	if err != nil {
		t.Fatal(err)
	}
	b.Init(t.Context(), backend.InitOptions{})
	return b, ms
}

// Our own clock stood still while a minority of the nodes is down, or hangs: the others
// are enough to tell.
func TestOwnClockIsToldWithoutAMinority(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log := &eventLog{}
			b, ms := some(t, 5, &Config{Logger: slog.New(slog.DiscardHandler), Observer: log.observe})
			_ = mustTake(t, b, "x", "").Release(t.Context())
			l := mustTake(t, b, "held", "")
			for i, m := range ms {
				switch {
				case i >= 2:
					m.ShiftClock(5 * time.Second)
				case frozen:
					m.Freeze()
				default:
					m.Down(true)
				}
			}
			begun := time.Now()
			y := mustTake(t, b, "y", "")
			if took := time.Since(begun); took > time.Second {
				t.Errorf("frozen %v: the lock was free, and taken after %v", frozen, took)
			}
			time.Sleep(20 * time.Second)
			if err := l.Extend(t.Context()); err != nil {
				t.Errorf("frozen %v: a lease that had 20 s left: %v", frozen, err)
			}
			for _, e := range log.take() {
				if e.Kind == backend.EventClockMoved {
					t.Errorf("frozen %v: %s: %v", frozen, e.Node, e.Err)
				}
			}
			_ = l.Release(t.Context())
			_ = y.Release(t.Context())
			for _, m := range ms {
				m.Thaw()
			}
			_ = b.Close(t.Context())
		})
	}
}

// The clock of one node leaps alone. Whatever else is up, a lease does not count on it
// any more; and while all others hang, it is not taken for ours.
func TestALeaseDropsANodeThatLeapt(t *testing.T) {
	for _, hang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log := &eventLog{}
			b, ms := some(t, 3, &Config{Logger: slog.New(slog.DiscardHandler), Observer: log.observe})
			_ = mustTake(t, b, "x", "").Release(t.Context())
			l := mustTake(t, b, "held", "")
			if hang {
				ms[1].Freeze()
				ms[2].Freeze()
			}
			ms[0].ShiftClock(time.Second)
			_ = l.Extend(t.Context())
			time.Sleep(time.Second)
			a := l.(*attempt)
			a.mu.Lock()
			if held := a.holding.Held(0); held {
				t.Errorf("others hang %v: the lease counts on a node that leapt", hang)
			}
			a.mu.Unlock()
			named := 0
			for _, e := range log.take() {
				if e.Kind == backend.EventClockMoved {
					named++
				}
			}
			if named != 1 {
				t.Errorf("others hang %v: named %d times", hang, named)
			}
			ms[1].Thaw()
			ms[2].Thaw()
			_ = l.Release(t.Context())
			_ = b.Close(t.Context())
		})
	}
}
