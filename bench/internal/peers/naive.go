package peers

import (
	"context"

	"example.com/redlock/testkit/naive"
)

// naivePeer locks nothing: a benchmark that finds no overlap with it could not
// find any.
type naivePeer struct{ naive.None }

func (p naivePeer) Lock(ctx context.Context, names []string) (Unlock, error) {
	unlock, err := p.None.Lock(ctx, names[0], TTL)
	return unlock, err
}

func (naivePeer) Close() error { return nil }
