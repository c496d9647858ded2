package quorum

import (
	"context"
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
