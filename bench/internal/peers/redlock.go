package peers

import (
	"context"
	"log/slog"

	"example.com/redlock"
)

// redlockPeer is this project with default options. Only its log is off, as
// that of the others is.
type redlockPeer struct{ lk *redlock.Locker }

func openRedlock(ctx context.Context, s Settings) (Peer, error) {
	lk, err := redlock.Open(ctx, s.Nodes, &redlock.Options{TTL: TTL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	// Servers that were given may be new, too. On others it changes nothing.
	if _, err := lk.Init(ctx, nil); err != nil && s.Own {
		_ = lk.Close(ctx) // the first error says more
		return nil, err
	}
	return redlockPeer{lk}, nil
}

func (p redlockPeer) Lock(ctx context.Context, names []string) (Unlock, error) {
	l, err := p.lk.Acquire(ctx, names[0], nil)
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (p redlockPeer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), TTL)
	defer cancel()
	return p.lk.Close(ctx)
}
