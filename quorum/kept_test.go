package quorum

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
)

// Somebody holds a name on nodes that have restarted with their data, and keeps it up
// there: they do not vote, but who has it can be told. One who does not wait for
// holders does not wait for their quarantine either.
func TestTryAcquireOfANameHeldInQuarantine(t *testing.T) {
	for name, forget := range map[string][]int{"one of two": {1}, "both": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, ms := three(t, nil)
				rival, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, &Config{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				ms[2].Down(true)
				l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 30 * time.Second, Owner: "me", NoRenew: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range forget {
					ms[i].Restart(true)
				}
				ms[2].Down(false)
				begun := time.Now()
				_, err = rival.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, NoWait: true})
				if !errors.Is(err, backend.ErrHeld) || time.Since(begun) > time.Second {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
				_ = l.Release(t.Context())
				if l, err := rival.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, NoWait: true}); err != nil {
					t.Errorf("once it is free: %v", err)
				} else {
					_ = l.Release(t.Context())
				}
				_ = rival.Close(t.Context())
				_ = b.Close(t.Context())
			})
		})
	}
}
