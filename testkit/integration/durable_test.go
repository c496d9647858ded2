package integration

import (
	"errors"
	"testing"
	"time"

	"example.com/redlock"
)

// TestF03DurableServer: AOF always, declared durable: a kill and a restart cost no
// quarantine, and the lease is still there. With everysec it is not declared.
func TestF03DurableServer(t *testing.T) {
	t.Parallel()
	ns := start(t, 1, "--appendonly", "yes", "--appendfsync", "always")
	lk := ns.open(nil)
	durable := &redlock.InitOptions{Durable: true}
	ns.text(0, "CONFIG", "SET", "appendfsync", "everysec")
	if _, err := lk.Init(t.Context(), durable); !errors.Is(err, redlock.ErrUnfit) {
		t.Errorf("everysec is durable: %v", err)
	}
	ns.text(0, "CONFIG", "SET", "appendfsync", "always")
	if states, err := lk.Init(t.Context(), durable); err != nil || !states[0].Durable {
		t.Fatalf("%+v, %v", states, err)
	}
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	began := time.Now()
	ns.restart(0)
	release(t, take(t, lk, "y", nil))
	if took := time.Since(began); took > slack {
		t.Errorf("it votes after %v", took)
	}
	_, err := lk.TryAcquire(t.Context(), "x", nil)
	is(t, err, []error{redlock.ErrHeld})
	release(t, l)
}
