// Package answer says what becomes of a node's answer: which event it is to the
// round, or to the renewal, that asked for it. It stands between package node, the
// language of nodes, and package core, the decisions: neither knows the other, and
// who carries the decisions out, for real or in the simulator, reads answers alike.
package answer

import (
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// Vote is what the answer of a node to an Acquire or a Replace, sent at sent, is to
// the round.
func Vote(ans node.Answer, lane int, sent core.Instant) core.Event {
	switch ans.Code {
	case node.Granted:
		return core.Event{Kind: core.Granted, Node: lane, Sent: sent, Token: ans.Token}
	case node.NoGuard, node.Stale, node.Failed:
		return core.Event{Kind: core.Unsent, Node: lane} // the node ran nothing of it
	}
	return core.Event{Kind: core.Refused, Node: lane}
}

// NoVote is what it is to the round that a node did not answer. sent tells that the
// question may have reached it.
func NoVote(lane int, sent bool) core.Event {
	if sent {
		return core.Event{Kind: core.Silent, Node: lane}
	}
	return core.Event{Kind: core.Unsent, Node: lane}
}

// Raise is what the outcome of a Raise is to the round.
func Raise(lane int, done bool) core.Event {
	if done {
		return core.Event{Kind: core.Raised, Node: lane}
	}
	return core.Event{Kind: core.RaiseFailed, Node: lane}
}

// Renewal is what the answer of a node to op, an Extend or a Join that was sent at
// sent, is to the renewal.
func Renewal(op node.Op, ans node.Answer, lane int, sent core.Instant) core.RenewalEvent {
	kind := extended(op, ans)
	if op.Kind == node.Join {
		kind = joined(ans)
	}
	return core.RenewalEvent{Kind: kind, Node: lane, Sent: sent}
}

func joined(ans node.Answer) core.RenewalEventKind {
	if ans.Code == node.Done {
		return core.Joined
	}
	return core.NotJoined
}

func extended(op node.Op, ans node.Answer) core.RenewalEventKind {
	switch {
	case ans.Code == node.Done:
		return core.Extended
	case ans.Code == node.Absent:
		return core.Missing
	case ans.Code == node.Broken && ans.Holder == op.ID:
		return core.Refusing
	case ans.Code == node.Failed || ans.Code == node.NoGuard:
		return core.Unanswered
	}
	return core.Taken
}

// NoRenewal is what it is to the renewal that a node did not answer an operation
// of kind k, an Extend or a Join.
func NoRenewal(k node.Kind, lane int) core.RenewalEvent {
	if k == node.Join {
		return core.RenewalEvent{Kind: core.NotJoined, Node: lane}
	}
	return core.RenewalEvent{Kind: core.Unanswered, Node: lane}
}
