package quorum

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
)

// A client is idle while a node is flushed and sits out its quarantine: the process
// stays the same, and so does the guard that it shows before and after. The number
// that the client remembers only this node has given out, so the node begins below it.
// That is no reason for another quarantine; old data put back later still is.
func TestCountersBegunAnewUnderTheSameGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &eventLog{}
		b, ms := three(t, nil)
		idle, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()},
			&Config{Logger: slog.New(slog.DiscardHandler), Observer: events.observe})
		if err != nil {
			t.Fatal(err)
		}
		_ = mustTake(t, idle, "x", "").Release(t.Context())
		countAt(t, idle, ms, 0)
		putBack := ms[0].Snapshot()
		time.Sleep(time.Minute)
		ms[0].Wipe()
		b.peers[0].recheck() // begins to watch
		time.Sleep(time.Minute)
		if !votes(t, b, 0) {
			t.Fatal("the quarantine does not end")
		}
		events.take()
		_ = mustTake(t, idle, "x", "").Release(t.Context())
		time.Sleep(time.Second)
		for _, e := range events.take() {
			if e.Kind == backend.EventNodeQuarantined {
				t.Errorf("in quarantine again: %v", e.Err)
			}
		}
		for range 3 { // numbers that the old data does not have
			_ = mustTake(t, idle, "x", "").Release(t.Context())
		}
		putBack()
		_ = mustTake(t, idle, "x", "").Release(t.Context())
		time.Sleep(time.Second)
		if votes(t, b, 0) {
			t.Error("the data went back, and the node votes")
		}
		_ = b.Close(t.Context())
		_ = idle.Close(t.Context())
	})
}
