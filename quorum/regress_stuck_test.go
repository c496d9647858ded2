package quorum

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
)

// Two nodes stay in quarantine for want of others that can tell the tokens, as
// CounterOnly asks. No time ends that, so it is an outage: nobody waits for longer than
// ConnectWait, least of all a caller that does not wait for holders.
func TestNobodyWaitsForAQuarantineThatDoesNotEnd(t *testing.T) {
	for _, noWait := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b, ms := three(t, &Config{CounterOnly: true})
			_ = mustTake(t, b, "x", "").Release(t.Context())
			ms[0].Restart(false)
			ms[1].Restart(false)
			begun := time.Now()
			_, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, NoWait: noWait, Wait: time.Hour})
			const q = 45300 * time.Millisecond
			if took := time.Since(begun); !errors.Is(err, backend.ErrQuarantined) || took < q || took > q+b.cfg.ConnectWait+5*time.Second {
				t.Errorf("NoWait %v: %v after %v", noWait, err, took)
			}
			_ = b.Close(t.Context())
		})
	}
}
