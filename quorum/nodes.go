package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// Nodes implements backend.Backend.
func (b *Backend) Nodes(ctx context.Context) []backend.NodeState {
	return b.introduceAll(ctx, func(int) node.Intent { return node.Look })
}

// Init implements backend.Backend. It looks first: a blank node among others that
// have records has lost its own, as far as anybody can tell. One that cannot be
// asked may have them.
func (b *Backend) Init(ctx context.Context, o backend.InitOptions) []backend.NodeState {
	states := b.Nodes(ctx)
	records := false
	var silent []string
	for _, s := range states {
		records = records || s.HasRecords
		if s.Standing == standingUnreachable || errors.Is(s.Err, backend.ErrNotPermitted) {
			silent = append(silent, s.Node)
		}
	}
	states = b.introduceAll(ctx, func(i int) node.Intent {
		switch {
		case states[i].Err != nil && states[i].Standing != standingQuarantined:
			return node.Look
		case records, len(silent) > 0:
			return node.Greet // begins the quarantine of one that is blank
		}
		return node.Declare
	})
	for i, p := range b.peers {
		s := &states[i]
		switch {
		case s.Standing != standingQuarantined:
		case o.Force:
			*s = p.forceVote(ctx)
		case !records && len(silent) > 0:
			s.Err = fmt.Errorf("not declared, because it is not known whether %s new, too (force does it): %w", areAll(silent), s.Err)
		}
		if (o.Durable || o.Forgetful) && s.Err == nil {
			*s = p.vouch(ctx, *s, o.Durable)
		}
	}
	return states
}

// areAll names the nodes of a sentence.
func areAll(nodes []string) string {
	if len(nodes) == 1 {
		return nodes[0] + " is"
	}
	return strings.Join(nodes, ", ") + " are"
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
	for i, p := range b.peers { // only now it is known what the others show
		describeError(&states[i], b.review(states[i].Err))
		if states[i].Standing == standingQuarantined {
			p.describeQuarantine(&states[i], replies[i])
		}
	}
	return states
}

// The standings of nodes, beside those that package node has.
const (
	standingQuarantined = string(node.StandingQuarantined)
	standingUnfit       = "unfit"
	standingOutdated    = "outdated"
	standingFenced      = "fenced"
	standingUnreachable = "unreachable"
)

// introduceAs says hello to the node and describes what it finds.
func (p *peer) introduceAs(ctx context.Context, intent node.Intent) (backend.NodeState, node.HelloReply) {
	s := backend.NodeState{Node: p.node.Name()}
	reply, err := p.hello(ctx, node.Hello{
		Keys: p.backend.keys, Conf: p.backend.conf, Intent: intent, Nonce: newNonce(),
	})
	if err == nil {
		s.Standing, s.RunID, s.Version, s.ByClock = string(reply.Standing), reply.RunID, reply.Version, reply.ByClock
		s.Durable = reply.Durable
		shown, known := node.ParseGuard(reply.Guard)
		s.HasRecords = known && shown.Conf != node.NoConf && !(intent == node.Declare && reply.Changed)
		err = p.judge(reply)
	}
	if err == nil && reply.Standing == node.StandingQuarantined {
		p.describeQuarantine(&s, reply)
		return s, reply
	}
	describeError(&s, p.asRefusal(err))
	return s, reply
}

// describeQuarantine says why and for how long the node does not vote.
func (p *peer) describeQuarantine(s *backend.NodeState, r node.HelloReply) {
	q := p.newQuarantine(r)
	s.Left, s.Err = q.Left(p.backend.clock.Awake()), p.backend.whyOut(q, true)
	if q.fenced {
		s.Standing, s.Left = standingFenced, 0
	}
}

// describeError says why a node has no vote.
func describeError(s *backend.NodeState, err error) {
	s.Err = err
	switch {
	case err == nil, errors.Is(err, backend.ErrQuarantined), errors.Is(err, backend.ErrNoQuorum):
	case errors.Is(err, backend.ErrMismatch):
		s.Standing = string(node.StandingMismatch)
	case errors.Is(err, backend.ErrUnfit):
		s.Standing = standingUnfit
	case isOutdated(err):
		s.Standing = standingOutdated
		s.Err = fmt.Errorf("%w: %w", backend.ErrNoQuorum, err)
	default:
		s.Standing = standingUnreachable
		s.Err = fmt.Errorf("%w: %w", backend.ErrNoQuorum, err)
	}
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
	p.endQuarantine(ctx, q, 0, func(bool, []core.TokenReport) bool { return true })
	s, _ = p.introduceAs(ctx, node.Look)
	if q.contested != nil {
		describeError(&s, q.contested)
	}
	return s
}
