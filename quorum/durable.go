package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
)

// hello says hello to the node. One that restarted and is marked as durable is
// trusted, and votes at once, if it is seen to write everything to disk before it
// answers; if it is seen not to, it is put in quarantine like any other. Who cannot
// see either leaves the node to those who can: without a vote, but without a
// quarantine. One that has ceased to write loses the mark while it still votes: what
// it does after the restart says nothing of what it did before.
func (p *peer) hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	reply, err := p.node.Hello(ctx, h)
	if err != nil || !reply.Durable {
		return reply, err
	}
	switch {
	case reply.Standing == node.StandingOK && h.Intent == node.Greet:
		why := p.notDurable(ctx)
		if !isForgetful(why) {
			return reply, nil
		}
		p.tellNotDurable(ctx, why)
		h.Intent = node.Unvouch
	case reply.Standing == node.StandingDurable && h.Intent != node.Look:
		h.Intent, h.Suspect = node.Trust, reply.Guard
		if why := p.notDurable(ctx); isForgetful(why) {
			p.tellNotDurable(ctx, why)
			h.Intent = node.Suspect
		} else if why != nil {
			return reply, why
		}
	default:
		return reply, nil
	}
	return p.node.Hello(ctx, h)
}

// isForgetful tells whether why says that the node was seen to forget.
func isForgetful(why error) bool {
	var u *backend.UnfitError
	return errors.As(why, &u) && u.Reason == backend.UnfitPersistence
}

func (p *peer) tellNotDurable(ctx context.Context, why error) {
	p.backend.cfg.Logger.Log(ctx, slog.LevelWarn, "redlock: a node that is marked as durable is not",
		"node", p.node.Name(), "reason", why)
}

// notDurable asks the node whether it forgets.
func (p *peer) notDurable(ctx context.Context) error {
	exam, err := p.node.Examine(ctx, node.Exam{Keys: p.backend.keys})
	if err != nil {
		return err
	}
	return forgets(exam)
}

// forgets returns why a restart of the node may forget something, or nil: it must
// append every write to a file, and sync that, before it answers. What a node that
// was promoted has on disk is not what it had granted as a master.
func forgets(exam node.ExamReply) error {
	switch {
	case exam.Config == nil:
		return notPermitted(errors.New("CONFIG GET, which verifies that the node is durable"))
	case exam.Info["aof_enabled"] != "1":
		return unfit(backend.UnfitPersistence, "appendonly is not yes")
	case exam.Config["appendfsync"] != "always":
		return unfit(backend.UnfitPersistence, "appendfsync is %s, not always", exam.Config["appendfsync"])
	case strings.Trim(exam.Info["master_replid2"], "0") != "":
		return unfit(backend.UnfitPersistence, "the server was a replica; restart it")
	}
	return nil
}

// vouch marks the node as durable, or takes that back, for an operator.
func (p *peer) vouch(ctx context.Context, s backend.NodeState, durable bool) backend.NodeState {
	ctx, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	intent := node.Unvouch
	if durable {
		intent = node.Vouch
		if err := p.notDurable(ctx); err != nil {
			s.Err = fmt.Errorf("not marked as durable: %w", err)
			return s
		}
	}
	was := s.Standing
	s, _ = p.introduceAs(ctx, intent)
	if s.Err == nil {
		s.Standing = was // "new" is more to say than "ok"
	}
	return s
}
