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
	if o.CounterOnly {
		return nil, fmt.Errorf("redlock: CounterOnly: %w", errors.ErrUnsupported)
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
		DriftRate: o.DriftRate, DriftFloor: o.DriftFloor, Logger: o.Logger, Observer: o.Observer,
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
	return lk.backend.Nodes(ctx, false)
}

// Init declares blank nodes: they take this Locker's configuration. The error
// joins those of nodes that did not.
func (lk *Locker) Init(ctx context.Context) ([]NodeState, error) {
	states := lk.backend.Nodes(ctx, true)
	var errs []error
	for _, s := range states {
		if s.Err != nil {
			errs = append(errs, fmt.Errorf("redlock: init %s: %w", s.Node, s.Err))
		}
	}
	return states, errors.Join(errs...)
}
