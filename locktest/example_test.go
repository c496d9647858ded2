package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"example.com/redlock"
	"example.com/redlock/locktest"
)

// TestWorkStops is how a test of code that works under a lock may look: in a
// bubble of testing/synctest a lease of ten seconds ends at once.
func TestWorkStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, service := locktest.New(t, 3, nil)
		err := lk.Do(t.Context(), "invoice/42", nil, func(ctx context.Context, l *redlock.Lease) error {
			for _, node := range service.Nodes {
				node.Freeze() // cut off from its nodes
			}
			<-ctx.Done() // the work under test: it must notice
			return nil
		})
		if !errors.Is(err, redlock.ErrLost) {
			t.Errorf("the work went on without its lock: %v", err)
		}
	})
}

// In a test function, t is its own.
func Example() {
	_ = func(t *testing.T) {
		lk, service := locktest.New(t, 3, nil)
		service.Nodes[0].Down(true) // one of three may be missing
		lease, err := lk.Acquire(t.Context(), "invoice/42", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(t.Context())
	}
}
