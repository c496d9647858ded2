// Package answer says what becomes of a node's answer: which event it is to the round,
// the renewal, or the waiter in line that asked for it. It stands between package node,
// the language of nodes, and package core, the decisions: neither knows the other, and
// all who carry the decisions out, for real, in the simulator and in the explorer, read
// answers alike.
package answer

import (
	"time"

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

// Line is what the answer of a node to op, a Wait, a Raise, or a Release that gives
// back, is to a waiter in line whose attempt asked for it. own tells whether an id is an
// attempt of the waiter's, and its number.
func Line(op node.Op, ans node.Answer, lane, attempt int, own func(id string) (int, bool)) core.LineEvent {
	ev := core.LineEvent{Kind: core.Answered, Node: lane, Attempt: attempt, Beat: op.Place.Beat}
	switch {
	case op.Kind == node.Raise && ans.Code == node.Done:
		ev.Kind = core.LiftedTo
		return ev
	case op.Kind != node.Wait, !carriedOut(ans):
		return NotInLine(op, lane, attempt)
	}
	ev.Granted, ev.Token, ev.Ticket = ans.Code == node.Granted, ans.Token, ans.Ticket
	ev.Holder, ev.Remaining = ans.Holder, time.Duration(ans.Remaining)*time.Millisecond
	ev.Older = older(ans, op.ID)
	ev.Dead, ev.Mine = own(ans.Holder)
	return ev
}

// carriedOut reports whether the node did what a Wait asked for. One that did not has
// not taken in the heartbeat either.
func carriedOut(ans node.Answer) bool {
	switch ans.Code {
	case node.NoGuard, node.Stale, node.WentBack, node.Failed:
		return false
	}
	return true
}

// older reports whether the holder waited with an older ticket than the attempt id.
func older(ans node.Answer, id string) bool {
	return ans.HolderTicket > 0 && (ans.HolderTicket < ans.Ticket || ans.HolderTicket == ans.Ticket && ans.Holder < id)
}

// NotInLine is what it is to a waiter that a node did not answer op, a Wait, a Raise, or
// a Release that gives back.
func NotInLine(op node.Op, lane, attempt int) core.LineEvent {
	ev := core.LineEvent{Kind: core.Returned, Node: lane, Attempt: attempt, Beat: op.Place.Beat}
	switch op.Kind {
	case node.Wait:
		ev.Kind = core.Unheard
	case node.Raise:
		ev.Kind = core.NotLifted
	}
	return ev
}

// Pushed is what a push of a node is to the waiter whose attempt it names.
func Pushed(p node.Push, lane, attempt int) core.LineEvent {
	return core.LineEvent{
		Kind: core.Pushed, Node: lane, Attempt: attempt, Beat: p.Beat, Token: p.Token,
		Lease: time.Duration(p.Lease) * time.Millisecond,
	}
}
