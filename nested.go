package redlock

import (
	"context"
	"fmt"
	"slices"

	"example.com/redlock/backend"
)

// holding is what the context of a lease, or of a set, says of itself to the calls that
// are given it.
type holding struct {
	locker *Locker
	names  []string
	// ctx ends with the lease.
	ctx context.Context
	// outer is that of the context that the lease was acquired with.
	outer *holding
}

type holdingKey struct{}

// newHolding returns a context with the values of parent, for a lease of names, and what
// ends it.
func newHolding(parent context.Context, lk *Locker, names ...string) (context.Context, context.CancelCauseFunc) {
	h := &holding{locker: lk, names: names, outer: holdingOf(parent)}
	var cancel context.CancelCauseFunc
	h.ctx, cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(parent), holdingKey{}, h))
	return h.ctx, cancel
}

func holdingOf(ctx context.Context) *holding {
	h, _ := ctx.Value(holdingKey{}).(*holding)
	return h
}

// checkNested refuses to wait for a lease that ctx itself belongs to: it would be waited
// for as long as ctx lasts, and so would a reader behind a writer that waits for it. Who
// does not wait is told by the nodes.
func (lk *Locker) checkNested(ctx context.Context, r backend.Request) error {
	for h := holdingOf(ctx); h != nil && !r.NoWait; h = h.outer {
		if h.locker == lk && slices.Contains(h.names, r.Name) && h.ctx.Err() == nil {
			return fmt.Errorf("redlock: acquire %q: %w", r.Name, ErrNested)
		}
	}
	return nil
}
