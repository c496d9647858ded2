package quorum

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
)

// A holds on 1 and 2 of 3. Node 2, which is durable, restarts, and comes back with a
// clock that is a minute ahead: A's lease has ended there. Who has seen the clock
// before does not take the vote.
func TestTheClockOfADurableNodeJumpsWhileItRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder, ms := three(t, nil)
		ms[1].Durable(true)
		holder.Init(t.Context(), backend.InitOptions{Durable: true})
		rival, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, &Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		_ = mustTake(t, rival, "y", "").Release(t.Context()) // it has met them
		ms[2].Down(true)
		mustTake(t, holder, "x", "")
		ms[2].Down(false)
		ms[1].Restart(true)
		ms[1].ShiftClock(time.Minute)
		if _, err := rival.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, MaxAttempts: 5}); err == nil {
			t.Error("two holders")
		}
		_ = holder.Close(t.Context())
		_ = rival.Close(t.Context())
	})
}
