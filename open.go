package redlock

import (
	"context"
	"errors"
	"fmt"

	"example.com/redlock/backend"
	"example.com/redlock/quorum"
	"example.com/redlock/redisnode"
)

// Open returns a Locker over the Redis masters at urls, such as
// redis://user:password@host:6379/0, rediss:// for TLS, unix:///path, or
// host:port; package redisnode describes them.
//
// Open checks urls and o, and sends nothing: nodes that are down are no error
// here. ctx bounds nothing else than that.
func Open(ctx context.Context, urls []string, o *Options) (*Locker, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("redlock: open: %w", context.Cause(ctx))
	}
	if o == nil {
		o = &Options{}
	}
	var nodes []quorum.Node
	for i, url := range urls {
		n, err := redisnode.Open(url, nil)
		if err != nil {
			return nil, errors.Join(badOption("node %d: %v", i+1, err), closeNodes(nodes))
		}
		nodes = append(nodes, n)
	}
	b, err := quorum.New(nodes, &quorum.Config{
		Namespace: o.Namespace, Cluster: o.Cluster, PlainKeys: o.PlainKeys, MaxTTL: o.MaxTTL,
		Quorum: o.Quorum, NodeTimeout: o.NodeTimeout, ConnectWait: o.ConnectWait,
		DriftRate: o.DriftRate, DriftFloor: o.DriftFloor, CounterOnly: o.CounterOnly, Logger: o.Logger, Observer: o.Observer,
	})
	if err != nil {
		return nil, errors.Join(err, closeNodes(nodes))
	}
	lk, err := newLocker(b, o.TTL)
	if err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return lk, nil
}

func closeNodes(nodes []quorum.Node) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// NodeState is what one node says of itself.
type NodeState = backend.NodeState

// Nodes asks every node who it is and whether it accepts this Locker's
// configuration. It changes nothing.
func (lk *Locker) Nodes(ctx context.Context) []NodeState {
	return lk.backend.Nodes(ctx)
}

// InitOptions says how Init declares nodes. The zero value, or nil, is right for
// new ones.
type InitOptions = backend.InitOptions

// Init declares new nodes: blank ones take this Locker's configuration, and vote
// from now on. A blank node among others that are in use has lost its memory, as
// far as can be told: it is put in quarantine, and votes when that is over. The
// error joins those of nodes that do not vote.
func (lk *Locker) Init(ctx context.Context, o *InitOptions) ([]NodeState, error) {
	if o == nil {
		o = &InitOptions{}
	}
	states := lk.backend.Init(ctx, *o)
	var errs []error
	for _, s := range states {
		if s.Err != nil {
			errs = append(errs, fmt.Errorf("redlock: init %s: %w", s.Node, s.Err))
		}
	}
	return states, errors.Join(errs...)
}
