package core

import (
	"cmp"
	"fmt"
	"time"
)

// RoundConfig says what an attempt is about.
type RoundConfig struct {
	Nodes, Quorum int
	TTL           time.Duration
	// MinValidity is how much validity must be left when the round is won.
	MinValidity time.Duration
	Drift       Drift
}

// EventKind says what happened to a round at one node.
type EventKind uint8

// The events of a round.
const (
	// Granted: the node gave its vote, with the number Event.Token.
	Granted EventKind = 1 + iota
	// Refused: the node answered no.
	Refused
	// Silent: no answer in time, or the way to the node broke after the send.
	// The node may have granted.
	Silent
	// Unsent: nothing reached the node, or it did not run what did.
	Unsent
	// Raised: the node lifted its counter to the token of the round.
	Raised
	// RaiseFailed: the node did not, or was silent.
	RaiseFailed
	// Void: what the node granted may have ended since.
	Void
)

// Event is what happened at one node.
type Event struct {
	Kind EventKind
	Node int
	// Sent (Granted) is when the vote was asked for.
	Sent Instant
	// Lease (Granted) is for how long the node gave it; zero for the TTL.
	Lease time.Duration
	// Token (Granted) is the number that came with the vote.
	Token uint64
}

// EffectKind says what a round wants done.
type EffectKind uint8

// The effects of a round.
const (
	// Raise the counter of Node to Token, given that it stored Stored.
	Raise EffectKind = 1 + iota
	// Undo the vote of Node, given or not.
	Undo
)

// Effect is what a round wants done at one node.
type Effect struct {
	Kind   EffectKind
	Node   int
	Stored uint64
	Token  uint64
}

// Round is one attempt to win the votes of a quorum, and a token that they
// agree on. All nodes are asked at once; Step is told what comes of it.
//
// The token: if a quorum of votes came with equal numbers, it is that number.
// Else it is the largest number m of the votes counted, once a quorum of all N
// nodes has lifted its counter to m while it still held the vote for us. (A
// quorum of the nodes held is not enough: at N = 5 two rounds could then agree
// on tokens in the wrong order.)
type Round struct {
	cfg     RoundConfig
	nodes   []ballot
	holding Holding
	verdict Verdict
	late    bool   // lost because too little validity was left
	token   uint64 // zero until votes suffice; then the number being agreed on
	effects []Effect
}

// ballot is what a round knows of one node.
type ballot struct {
	answer  EventKind // zero while the vote is outstanding
	number  uint64    // what a grant came with
	witness bool      // the node's counter has reached the token
	raising bool      // a raise is outstanding
	stuck   bool      // a raise failed: the node will be no witness
	undone  bool      // the vote was given back
}

// NewRound returns a round in which the votes of all nodes are outstanding.
func NewRound(cfg RoundConfig) *Round {
	return &Round{
		cfg:     cfg,
		nodes:   make([]ballot, cfg.Nodes),
		holding: NewHolding(cfg.Nodes, cfg.Quorum, cfg.Drift),
		verdict: Pending,
	}
}

// Verdict returns what the round has come to.
func (r *Round) Verdict() Verdict { return r.verdict }

// Token returns the token of a round that is won.
func (r *Round) Token() uint64 { return r.token }

// Late reports whether a lost round had its quorum, but too late.
func (r *Round) Late() bool { return r.late }

// Holding returns the lease of a round that is won, to go on with.
func (r *Round) Holding() Holding { return r.holding }

// Step takes in what happened and returns what to do about it. The slice is
// good until the next call.
//
// A round that is lost undoes the vote of every node that may have given it,
// as soon as nothing of the round is outstanding there, and again whenever a
// grant arrives late. A round that is won takes no more events: late grants
// belong to the lease.
func (r *Round) Step(now Instant, ev Event) []Effect {
	r.effects = r.effects[:0]
	b := &r.nodes[ev.Node]
	switch ev.Kind {
	case Raised, RaiseFailed:
		b.raising = false
		b.witness = b.witness || ev.Kind == Raised
		b.stuck = ev.Kind == RaiseFailed
	case Void:
		if b.answer == Granted {
			b.answer = Silent
			r.holding.Vanish(now, ev.Node)
		}
	case Granted, Refused, Silent, Unsent:
		if b.answer == Granted && ev.Kind != Granted {
			break // a duplicate, or what was asked again: the vote stands
		}
		b.answer, b.number = ev.Kind, ev.Token
		if ev.Kind == Granted {
			b.undone = false
			r.holding.Ack(now, ev.Node, ev.Sent, cmp.Or(ev.Lease, r.cfg.TTL))
		}
	default:
		panic(fmt.Sprintf("core: event kind %d", ev.Kind))
	}
	switch r.verdict {
	case Pending:
		r.decide(now)
	case Lost:
		r.undo(ev.Node)
	}
	return r.effects
}

// GiveUp loses a round that is pending, for reasons of the caller's.
func (r *Round) GiveUp() []Effect {
	r.effects = r.effects[:0]
	if r.verdict == Pending {
		r.lose()
	}
	return r.effects
}

// decide moves a pending round on.
func (r *Round) decide(now Instant) {
	granted, outstanding := 0, 0
	for i := range r.nodes {
		switch r.nodes[i].answer {
		case Granted:
			granted++
		case 0:
			outstanding++
		}
	}
	if granted < r.cfg.Quorum {
		if granted+outstanding < r.cfg.Quorum {
			r.lose()
		}
		return
	}
	if r.token == 0 && !r.agreeAtOnce() {
		r.token = r.largest()
	}
	r.raise()
	switch witnesses, possible := r.witnesses(); {
	case witnesses >= r.cfg.Quorum:
		r.win(now)
	case possible < r.cfg.Quorum:
		r.lose()
	}
}

// agreeAtOnce looks for a quorum of equal numbers and takes it as the token.
func (r *Round) agreeAtOnce() bool {
	for i := range r.nodes {
		if r.nodes[i].answer != Granted {
			continue
		}
		equal := 0
		for j := range r.nodes {
			if r.nodes[j].answer == Granted && r.nodes[j].number == r.nodes[i].number {
				equal++
			}
		}
		if equal >= r.cfg.Quorum {
			r.token = r.nodes[i].number
			return true
		}
	}
	return false
}

// largest returns the largest number of the votes given so far.
func (r *Round) largest() uint64 {
	var m uint64
	for i := range r.nodes {
		if r.nodes[i].answer == Granted {
			m = max(m, r.nodes[i].number)
		}
	}
	return m
}

// raise asks nodes that voted with a smaller number than the token to lift
// their counters, and takes those whose number it is as witnesses. A late vote
// with a larger number is no witness: the token does not come after what that
// node had given out before.
func (r *Round) raise() {
	agreed := 0
	for i := range r.nodes {
		b := &r.nodes[i]
		if b.answer == Granted && b.number == r.token {
			b.witness = true
		}
		if b.witness {
			agreed++
		}
	}
	if agreed >= r.cfg.Quorum {
		return
	}
	for i := range r.nodes {
		b := &r.nodes[i]
		if b.answer == Granted && b.number < r.token && !b.witness && !b.raising && !b.stuck {
			b.raising = true
			r.effects = append(r.effects, Effect{Kind: Raise, Node: i, Stored: b.number, Token: r.token})
		}
	}
}

// witnesses counts the nodes whose counters have reached the token, and those
// that still may.
func (r *Round) witnesses() (have, possible int) {
	for i := range r.nodes {
		b := &r.nodes[i]
		switch {
		case b.witness:
			have++
			possible++
		case b.raising, b.answer == 0:
			possible++
		}
	}
	return have, possible
}

// win settles the round, unless there is too little of the lease left.
func (r *Round) win(now Instant) {
	if r.holding.Lost(now) || r.holding.Until().Sub(now) < r.cfg.MinValidity {
		r.late = true
		r.lose()
		return
	}
	r.verdict = Won
}

func (r *Round) lose() {
	r.verdict = Lost
	for i := range r.nodes {
		r.undo(i)
	}
}

// undo asks for the vote of a node to be undone, whatever the node answered: a
// refusal may be followed by the grant of a request that the network doubled.
// A node that still owes an answer is undone when the answer is in.
func (r *Round) undo(node int) {
	b := &r.nodes[node]
	if b.answer == 0 || b.answer == Unsent || b.raising || b.undone {
		return
	}
	b.undone = true
	r.effects = append(r.effects, Effect{Kind: Undo, Node: node})
}
