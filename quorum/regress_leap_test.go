package quorum

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
)

// Node 1 grants, then its clock jumps ahead, so that the lease ends there. That is
// noticed, by another call, before node 2 has granted as well: the vote of node 1
// counts no more.
func TestAClockThatJumpsDuringARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		rival, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, &Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		_ = mustTake(t, b, "y", "").Release(t.Context()) // it has met them
		ms[2].Down(true)
		ms[1].Delay(30 * time.Millisecond)
		time.AfterFunc(5*time.Millisecond, func() {
			ms[0].ShiftClock(time.Minute)
			_, _ = b.Inspect(t.Context(), "y")
		})
		_, err = b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, NoRenew: true, MaxAttempts: 1})
		ms[2].Down(false)
		if err == nil {
			if _, err := rival.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, Wait: time.Second}); err == nil {
				t.Error("two holders")
			}
		}
		_ = b.Close(t.Context())
		_ = rival.Close(t.Context())
	})
}
