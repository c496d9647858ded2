package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
)

// Nodes implements backend.Backend.
func (b *Backend) Nodes(ctx context.Context) []backend.NodeState {
	return b.introduceAll(ctx, func(int) node.Intent { return node.Look })
}

// Init implements backend.Backend. It looks first: a blank node among others that
// have records has lost its own, as far as anybody can tell.
func (b *Backend) Init(ctx context.Context, o backend.InitOptions) []backend.NodeState {
	states := b.Nodes(ctx)
	records := false
	for _, s := range states {
		records = records || s.HasRecords
	}
	states = b.introduceAll(ctx, func(i int) node.Intent {
		switch {
		case states[i].Err != nil && states[i].Standing != StandingQuarantined:
			return node.Look
		case records:
			return node.Greet // begins the quarantine of one that is blank
		}
		return node.Declare
	})
	if !o.Force {
		return states
	}
	for i, s := range states {
		if s.Standing == StandingQuarantined {
			states[i] = b.peers[i].forceVote(ctx)
		}
	}
	return states
}

// introduceAll says hello to all nodes, with the intent for each.
func (b *Backend) introduceAll(ctx context.Context, intent func(i int) node.Intent) []backend.NodeState {
	ctx, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	states := make([]backend.NodeState, len(b.peers))
	replies := make([]node.HelloReply, len(b.peers))
	var wg sync.WaitGroup
	for i, p := range b.peers {
		wg.Go(func() { states[i], replies[i] = p.introduceAs(ctx, intent(i)) })
	}
	wg.Wait()
	for i, p := range b.peers {
		if states[i].Standing == StandingQuarantined {
			p.describeQuarantine(&states[i], replies[i]) // knowing what the others show
		}
	}
	return states
}

// The standings of nodes, beside those that package node has.
const (
	StandingQuarantined = string(node.StandingQuarantined)
	standingUnfit       = "unfit"
	standingUnreachable = "unreachable"
)

// introduceAs says hello to the node and describes what it finds.
func (p *peer) introduceAs(ctx context.Context, intent node.Intent) (backend.NodeState, node.HelloReply) {
	s := backend.NodeState{Node: p.node.Name()}
	reply, err := p.node.Hello(ctx, node.Hello{
		Keys: p.backend.keys, Conf: p.backend.conf, Intent: intent, Nonce: newNonce(),
	})
	if err == nil {
		s.Standing, s.RunID, s.Version, s.ByClock = string(reply.Standing), reply.RunID, reply.Version, reply.ByClock
		shown, known := node.ParseGuard(reply.Guard)
		s.HasRecords = known && shown.Conf != node.NoConf && !(intent == node.Declare && reply.Changed)
		err = p.judge(reply)
	}
	if err == nil {
		p.noteConf(reply)
	}
	if err == nil && reply.Standing == node.StandingQuarantined {
		p.describeQuarantine(&s, reply)
		return s, reply
	}
	s.Err = p.asRefusal(err)
	switch {
	case errors.Is(s.Err, backend.ErrMismatch):
		s.Standing = string(node.StandingMismatch)
	case errors.Is(s.Err, backend.ErrUnfit):
		s.Standing = standingUnfit
	case s.Err != nil:
		s.Standing = standingUnreachable
		s.Err = fmt.Errorf("%w: %w", backend.ErrNoQuorum, s.Err)
	}
	return s, reply
}

// noteConf takes in whether the node, which accepts our configuration, shows it.
func (p *peer) noteConf(r node.HelloReply) {
	if shown, known := node.ParseGuard(r.Guard); known && shown.Conf != node.NoConf {
		p.backend.confSeen.Store(true)
	}
}

// describeQuarantine says for how long the node does not vote.
func (p *peer) describeQuarantine(s *backend.NodeState, r node.HelloReply) {
	q := p.newQuarantine(r)
	now := p.backend.clock.Awake()
	s.Left, s.Err = q.Left(now), q.err(now)
}

// forceVote ends the quarantine of the node before its time, because an operator
// says that nothing it has forgotten matters.
func (p *peer) forceVote(ctx context.Context) backend.NodeState {
	ctx, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	s, reply := p.introduceAs(ctx, node.Greet)
	if reply.Standing != node.StandingQuarantined {
		return s
	}
	q := p.newQuarantine(reply)
	p.endQuarantine(ctx, q, 0, func(bool, int) bool { return true })
	s, _ = p.introduceAs(ctx, node.Look)
	return s
}
