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
			var nodes []Node
			var ms []*memnode.Node
			for i := range n {
				m := memnode.New(fmt.Sprint(i))
				ms, nodes = append(ms, m), append(nodes, m)
			}
			b, err := New(nodes, &Config{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			b.Init(t.Context(), backend.InitOptions{})
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
