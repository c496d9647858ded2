package quorum

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A node freezes in quarantine. Close claims the time that has passed, and does not
// greet a node that does not answer.
func TestCloseDoesNotWaitForANodeInQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		ms[0].Restart(false)
		_ = mustTake(t, b, "x", "").Release(t.Context())
		time.Sleep(500 * time.Millisecond)
		ms[0].Freeze()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		_ = b.Close(ctx)
		if took := time.Since(begun); took > 0 {
			t.Errorf("Close took %v, and its ctx had ended", took)
		}
		ms[0].Thaw()
	})
}

// stuckHandler is a log that does not return once it is stuck.
type stuckHandler struct {
	slog.Handler
	stuck *atomic.Bool
	free  chan struct{}
}

func (h stuckHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h stuckHandler) Handle(context.Context, slog.Record) error {
	if h.stuck.Load() {
		<-h.free
	}
	return nil
}

// A node leaves its quarantine, and whoever watched it cannot say so.
func TestCloseDoesNotWaitForAStuckLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := stuckHandler{slog.DiscardHandler, new(atomic.Bool), make(chan struct{})}
		b, ms := three(t, &Config{Logger: slog.New(log)})
		ms[0].Restart(true)
		_ = mustTake(t, b, "x", "").Release(t.Context())
		log.stuck.Store(true)
		time.Sleep(47 * time.Second)
		if !votes(t, b, 0) {
			t.Fatal("the node is still in quarantine")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_ = b.Close(ctx)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("Close took %v of the second it was given", took)
		}
		close(log.free)
	})
}
