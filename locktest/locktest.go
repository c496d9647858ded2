// Package locktest gives tests a redlock.Locker that needs no server: its nodes
// are in memory, know their configuration from the start, and fail on demand.
//
// It keeps time with package time, so that it works in a bubble of
// testing/synctest, where a lease of ten seconds ends at once.
package locktest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/memnode"
	"example.com/redlock/quorum"
)

// Service is a set of nodes that Lockers can be opened on, as processes on
// different hosts would.
type Service struct {
	// Nodes can be frozen, cut off, wiped and so on.
	Nodes []*memnode.Node
}

// New returns a Locker over n fresh nodes, and their Service. The Locker is
// closed at the end of the test. Of o, nil for defaults, the fields apply that
// redlock.Open takes.
func New(t testing.TB, n int, o *redlock.Options) (*redlock.Locker, *Service) {
	t.Helper()
	s := &Service{}
	for i := range n {
		s.Nodes = append(s.Nodes, memnode.New(fmt.Sprintf("node%d", i+1)))
	}
	lk := s.Open(t, o)
	if _, err := lk.Init(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return lk, s
}

// Open returns another Locker over the same nodes. It is closed at the end of
// the test.
func (s *Service) Open(t testing.TB, o *redlock.Options) *redlock.Locker {
	t.Helper()
	if o == nil {
		o = &redlock.Options{}
	}
	nodes := make([]quorum.Node, len(s.Nodes))
	for i, n := range s.Nodes {
		nodes[i] = n.Client()
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	b, err := quorum.New(nodes, &quorum.Config{
		Namespace: o.Namespace, Cluster: o.Cluster, PlainKeys: o.PlainKeys, MaxTTL: o.MaxTTL,
		Quorum: o.Quorum, NodeTimeout: o.NodeTimeout, ConnectWait: o.ConnectWait,
		DriftRate: o.DriftRate, DriftFloor: o.DriftFloor, CounterOnly: o.CounterOnly, Logger: logger, Observer: o.Observer,
	})
	if err != nil {
		t.Fatal(err)
	}
	lk, err := redlock.New(b, &redlock.Options{TTL: o.TTL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if err := lk.Close(ctx); err != nil {
			t.Errorf("closing the locker: %v", err)
		}
	})
	return lk
}

// closeLimit is how long the end of a test waits for bodies of Do.
const closeLimit = 10 * time.Second
