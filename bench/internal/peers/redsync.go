package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// redsyncPeer is go-redsync over go-redis, with redsync's own defaults but for
// these:
//
//   - expiry: the TTL of all peers, in place of 8 s;
//   - tries: as many as fit into the run, in place of 32, after which it would
//     give up on a contended name;
//   - ContextTimeoutEnabled, without which go-redis ignores the node timeout
//     that redsync asks for (a twentieth of the expiry);
//   - Unlock gets the same node timeout, for which redsync has no default: a
//     frozen node would hold it up for go-redis's read timeouts;
//   - with distant nodes, a pool that has a connection for every goroutine. On
//     loopback go-redis's own size, ten for each core, is faster; with 20 ms more,
//     128 goroutines have three times the rate with a pool for all of them.
type redsyncPeer struct {
	rs      *redsync.Redsync
	options []redsync.Option
	clients []*redis.Client
}

// unlockTimeout is what Lock has by redsync's default timeout factor.
const unlockTimeout = TTL / 20

func openRedsync(s Settings, failFast bool) (Peer, error) {
	logging.Disable() // its notes on broken connections are counted as errors here
	p := &redsyncPeer{options: []redsync.Option{
		redsync.WithExpiry(TTL), redsync.WithTries(math.MaxInt32), redsync.WithFailFast(failFast),
	}}
	var pools []redsyncredis.Pool
	for _, url := range s.Nodes {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("redsync: %w", err), p.Close())
		}
		o.ContextTimeoutEnabled = true
		if s.Latency > 0 {
			o.PoolSize = max(10*runtime.GOMAXPROCS(0), s.Goroutines)
		}
		c := redis.NewClient(o)
		p.clients, pools = append(p.clients, c), append(pools, goredis.NewPool(c))
	}
	p.rs = redsync.New(pools...)
	return p, nil
}

func (p *redsyncPeer) Lock(ctx context.Context, names []string) (Unlock, error) {
	m := p.rs.NewMutex(names[0], p.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
		defer cancel()
		ok, err := m.UnlockContext(ctx)
		switch {
		case ok:
			return nil // a quorum confirmed; what the others said does not matter
		case err != nil:
			return err
		}
		return errors.New("redsync: not held any more")
	}, nil
}

func (p *redsyncPeer) Close() error {
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
