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
	b, err := openBackend(urls, o)
	if err != nil {
		return nil, err
	}
	lk, err := newLocker(b, o.TTL)
	if err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return lk, nil
}

func openBackend(urls []string, o *Options) (*quorum.Backend, error) {
	nodes, err := openNodes(urls)
	if err != nil {
		return nil, err
	}
	b, err := quorum.New(nodes, &quorum.Config{
		Namespace: o.Namespace, Cluster: o.Cluster, PlainKeys: o.PlainKeys, MaxTTL: o.MaxTTL,
		Quorum: o.Quorum, NodeTimeout: o.NodeTimeout, ConnectWait: o.ConnectWait,
		DriftRate: o.DriftRate, DriftFloor: o.DriftFloor, CounterOnly: o.CounterOnly, Logger: o.Logger, Observer: o.Observer,
	})
	if err != nil {
		return nil, errors.Join(err, closeNodes(nodes))
	}
	return b, nil
}

func openNodes(urls []string) ([]quorum.Node, error) {
	var nodes []quorum.Node
	for i, url := range urls {
		n, err := redisnode.Open(url, nil)
		if err != nil {
			return nil, errors.Join(badOption("node %d: %v", i+1, err), closeNodes(nodes))
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
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

// Finding is what one check of Doctor found.
type Finding = backend.Finding

// Severity says what a Finding means.
type Severity = backend.Severity

// The severities; package backend describes each.
const (
	SeverityOK      = backend.SeverityOK
	SeverityHint    = backend.SeverityHint
	SeverityWarning = backend.SeverityWarning
	SeverityFailure = backend.SeverityFailure
)

// Doctor puts every node to every check: what is wrong, and what to do about it.
// It changes nothing, and takes a second or two: it looks at the nodes' clocks
// twice. If nothing could be locked, as the nodes are, the error is an
// ErrNoQuorum with the reasons; the findings come with it.
func (lk *Locker) Doctor(ctx context.Context) ([]Finding, error) {
	if lk.closing.Err() != nil {
		return nil, ErrClosed
	}
	return lk.backend.Doctor(ctx)
}

// InitOptions says how Init declares nodes. The zero value, or nil, is right for
// new ones.
type InitOptions = backend.InitOptions

// Init declares new nodes: blank ones take this Locker's configuration, and vote
// from now on. A blank node among others that are in use has lost its memory, as
// far as can be told, and one among others that do not answer may have: it is put
// in quarantine, and votes when that is over. The error joins those of nodes that do
// not vote.
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

// Reconfigure gives the nodes at urls the configuration that Open with o would
// expect of them, in place of the one that they, or the nodes at oldURLs, have:
// another number of nodes, other members, another quorum, MaxTTL or kind of keys.
// oldURLs has the nodes that are to be left behind; those that cannot be reached
// may be missing, as long as a quorum of the old configuration cannot be made of
// them alone.
//
// Leases may be held meanwhile. Their holders cannot extend them any more, and get
// ErrLost at the end of their validity. Clients of the old configuration get
// ErrMismatch, and those of the new one wait, for about one and a half times the
// larger MaxTTL, until no old lease is left.
//
// If Reconfigure fails, run it again: it goes on where it was, and until it has
// succeeded the new configuration grants nothing that the old one could. The states
// are those of the nodes at urls, then of the old ones that are left behind.
func Reconfigure(ctx context.Context, urls []string, o *Options, oldURLs []string) ([]NodeState, error) {
	if o == nil {
		o = &Options{}
	}
	old, err := openNodes(oldURLs)
	if err != nil {
		return nil, err
	}
	b, err := openBackend(urls, o)
	if err != nil {
		return nil, errors.Join(err, closeNodes(old))
	}
	states, err := b.Reconfigure(ctx, old)
	return states, errors.Join(err, b.Close(ctx), closeNodes(old))
}
