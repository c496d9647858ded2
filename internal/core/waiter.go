package core

import (
	"cmp"
	"slices"
	"time"
)

// maxRest is the longest that a vote that was given back stays with nobody.
const maxRest = time.Second

// Waiter is a place in the line of a name, on all nodes. It holds the name once a
// quorum of nodes has given it to the same attempt, by push or by answer, and their
// numbers are agreed on (Round).
//
// It has one attempt after the other: what was given back may not come to life again
// by a message that was late. What arrives for a dead attempt is given back to the
// present one: a plain release would have the node hand the name to the dead one
// again.
type Waiter struct {
	cfg     RoundConfig
	times   LineTimes
	attempt int
	ticket  uint64 // agreed; zero before
	round   *Round
	spots   []spot
	// since is when the first vote of the attempt came, zero without one.
	since Instant
	// askAt is when the nodes that have not voted are asked again, zero while they
	// are being asked; beatAt is when all are.
	askAt, beatAt Instant
	// below is since when fewer than a quorum of nodes have answered.
	below   Instant
	effects []LineEffect
}

// spot is what a waiter knows of one node.
type spot struct {
	asked   bool // it owes an answer
	again   bool // it is to be asked when it has answered
	returns bool // it owes an answer to what gave back
	silent  bool // it owed one for too long, and nothing was heard since
	open    bool // it was asked in this burst, and owes the answer
	older   bool // it named an older holder in this burst

	ticket    uint64
	told      bool // it was sent the ticket that was agreed on
	holder    string
	remaining time.Duration
	askAt     Instant // when it is to be asked before the next heartbeat, or zero

	beat       uint64 // of what was sent last
	askBeat    uint64 // of what was asked last
	returnBeat uint64 // of what gave back last
	sent       []sentBeat
	refused    uint64 // the last heartbeat that was refused
	voted      uint64 // the heartbeat that its vote counts from, zero without one
}

type sentBeat struct {
	beat uint64
	at   Instant
}

// NewWaiter returns a waiter that stands nowhere yet. The effects begin it.
func NewWaiter(cfg RoundConfig, times LineTimes, now Instant) (*Waiter, []LineEffect) {
	cfg.MinValidity = times.Enough
	w := &Waiter{cfg: cfg, times: times, round: NewRound(cfg), spots: make([]spot, cfg.Nodes), below: now, beatAt: now}
	return w, w.Tick(now)
}

// Attempt is the number of the present attempt. Those before are dead.
func (w *Waiter) Attempt() int { return w.attempt }

// Ticket is the ticket that was agreed on, zero before.
func (w *Waiter) Ticket() uint64 { return w.ticket }

// TicketAt is the ticket to ask a node with.
func (w *Waiter) TicketAt(node int) uint64 { return cmp.Or(w.ticket, w.spots[node].ticket) }

// Won reports whether the name is held. Round has the lease.
func (w *Waiter) Won() bool { return w.round.Verdict() == Won }

// Round is the round of the present attempt.
func (w *Waiter) Round() *Round { return w.round }

// OutOfReach reports whether too few nodes have answered for too long.
func (w *Waiter) OutOfReach(now Instant) bool { return now.Sub(w.below) >= w.times.Reach }

// Next is when Tick is to be called.
func (w *Waiter) Next() Instant {
	next := min(w.beatAt, w.below.Add(w.times.Reach))
	if w.since != 0 {
		next = min(next, w.since.Add(w.times.Patience))
		if w.askAt != 0 && w.votes() < w.cfg.Quorum {
			next = min(next, w.askAt)
		}
	}
	for i := range w.spots {
		if at := w.spots[i].askAt; at != 0 {
			next = min(next, at)
		}
	}
	return next
}

// Step takes in what happened and returns what to do about it. The slice is good until
// the next call. A waiter that has won takes no more events: what comes late belongs to
// the lease.
func (w *Waiter) Step(now Instant, ev LineEvent) []LineEffect {
	w.effects = w.effects[:0]
	s := &w.spots[ev.Node]
	switch ev.Kind {
	case Left:
		s.sent = append(s.sent, sentBeat{ev.Beat, ev.Sent})
		s.sent = slices.DeleteFunc(s.sent, func(b sentBeat) bool { return ev.Sent.Sub(b.at) > w.times.Assign })
		return w.effects
	case Answered:
		s.settle(ev.Beat)
		s.silent = false
		w.answered(now, s, ev)
	case Pushed:
		if at := s.sentAt(ev.Beat); at != 0 && ev.Beat >= s.refused {
			s.silent = false
			w.granted(now, s, ev, at)
		} else if ev.Attempt != w.attempt {
			w.giveBack(ev.Node, ev.Attempt, 0)
		}
	case Unheard:
		s.settle(ev.Beat)
		s.silent = true
	case Returned:
		s.returns = s.returns && ev.Beat != s.returnBeat
	case LiftedTo, NotLifted:
		kind := RaiseFailed
		if ev.Kind == LiftedTo {
			kind = Raised
		}
		if ev.Attempt == w.attempt {
			w.apply(w.round.Step(now, Event{Kind: kind, Node: ev.Node}))
		}
	case Lapsed:
		w.void(now, ev.Node)
	case Stirred:
		w.ask(ev.Node)
	case Distrusted:
		w.distrust(now, ev)
	}
	w.proceed(now, ev.Node)
	return w.effects
}

// Tick does what is due.
func (w *Waiter) Tick(now Instant) []LineEffect {
	w.effects = w.effects[:0]
	if now >= w.beatAt {
		w.beatAt = now.Add(w.times.Beat)
		for i := range w.spots {
			w.ask(i)
		}
	}
	for i := range w.spots {
		if at := w.spots[i].askAt; at != 0 && now >= at {
			w.ask(i)
		}
	}
	w.decide(now)
	return w.effects
}

// answered takes in the answer to what was asked.
func (w *Waiter) answered(now Instant, s *spot, ev LineEvent) {
	if ev.Ticket > 0 {
		s.ticket = ev.Ticket
		w.agree()
	}
	if ev.Granted {
		w.granted(now, s, ev, s.sentAt(ev.Beat))
		return
	}
	s.refused = max(s.refused, ev.Beat)
	s.holder, s.remaining, s.askAt = ev.Holder, ev.Remaining, ev.Again
	if s.voted != 0 && ev.Beat > s.voted {
		w.void(now, ev.Node) // the vote ran out
	}
	if s.voted == 0 {
		s.older = ev.Older
	}
	if ev.Mine && ev.Dead != w.attempt && !s.returns { // what gave it back was lost
		w.giveBack(ev.Node, ev.Dead, 0)
	}
}

// granted takes in a vote for an attempt that was asked for at sent, or later.
func (w *Waiter) granted(now Instant, s *spot, ev LineEvent, sent Instant) {
	if ev.Attempt != w.attempt {
		w.giveBack(ev.Node, ev.Attempt, 0)
		return
	}
	s.voted, s.older, s.holder = max(s.voted, ev.Beat), false, ""
	if w.since == 0 {
		w.since, w.askAt = now, now.Add(w.times.AskAgain)
		for i := range w.spots {
			w.spots[i].older = false
		}
	}
	w.apply(w.round.Step(now, Event{Kind: Granted, Node: ev.Node, Sent: sent, Lease: ev.Lease, Token: ev.Token}))
}

// distrust gives back what came from a node that has no vote. If that was for the
// present attempt, the attempt is over: what is released anywhere is dead, or a release
// that is late would hit what the node grants it later.
func (w *Waiter) distrust(now Instant, ev LineEvent) {
	if ev.Attempt == w.attempt {
		w.spots[ev.Node].voted = 0
		w.startOver(now)
	}
	w.effects = append(w.effects, LineEffect{Kind: Leave, Node: ev.Node, Attempt: ev.Attempt})
}

// void takes back the vote of a node.
func (w *Waiter) void(now Instant, node int) {
	if s := &w.spots[node]; s.voted != 0 {
		s.voted = 0
		w.apply(w.round.Step(now, Event{Kind: Void, Node: node}))
	}
}

// agree makes the largest of a quorum of tickets the one to wait with, and has the
// nodes told that know another. It is the same on all nodes, or each would have an
// order of its own, and two waiters would be first for ever.
func (w *Waiter) agree() {
	if w.ticket == 0 {
		var largest uint64
		known := 0
		for i := range w.spots {
			if t := w.spots[i].ticket; t > 0 {
				known++
				largest = max(largest, t)
			}
		}
		if known < w.cfg.Quorum {
			return
		}
		w.ticket = largest
	}
	for i := range w.spots {
		if s := &w.spots[i]; s.ticket > 0 && s.ticket != w.ticket && !s.told {
			w.ask(i)
		}
	}
}

// apply has counters lifted, as the round wants. What it wants undone goes back with
// the attempt, in decide.
func (w *Waiter) apply(effects []Effect) {
	for _, e := range effects {
		if e.Kind == Raise {
			w.effects = append(w.effects, LineEffect{Kind: LiftTo, Node: e.Node, Attempt: w.attempt, Stored: e.Stored, Token: e.Token})
		}
	}
}

// proceed asks the node what waited for its answer, and decides.
func (w *Waiter) proceed(now Instant, node int) {
	if s := &w.spots[node]; s.again && !s.asked && !s.returns {
		w.ask(node)
	}
	w.decide(now)
}

// decide looks whether votes that are too few should be given back, or the other nodes
// asked.
func (w *Waiter) decide(now Instant) {
	w.watchReach(now)
	if w.Won() || w.since == 0 {
		return
	}
	if w.round.Verdict() == Lost || w.votes() == 0 || now.Sub(w.since) >= w.times.Patience {
		w.startOver(now)
		return
	}
	if w.votes() >= w.cfg.Quorum {
		return // the token is being agreed on
	}
	open, older := false, false
	for i := range w.spots {
		open = open || w.spots[i].open
		older = older || w.spots[i].older
	}
	switch {
	case w.askAt == 0 && !open && older:
		w.startOver(now)
	case w.askAt == 0 && !open:
		w.askAt = now.Add(w.times.AskAgain)
	case w.askAt != 0 && now >= w.askAt:
		w.burst()
	}
}

// burst asks the nodes that have not voted. One that was silent counts as having
// answered until it really does: to wait for it again and again would keep the votes
// for ever.
func (w *Waiter) burst() {
	w.askAt = 0
	for i := range w.spots {
		s := &w.spots[i]
		s.older = false
		if s.voted == 0 {
			w.ask(i)
			s.open = !s.silent
		}
	}
}

func (w *Waiter) votes() int {
	votes := 0
	for i := range w.spots {
		if w.spots[i].voted != 0 {
			votes++
		}
	}
	return votes
}

// startOver gives all votes back and goes on with a fresh attempt.
func (w *Waiter) startOver(now Instant) {
	dead, rest := w.attempt, w.rest()
	w.attempt++
	w.round = NewRound(w.cfg)
	w.since, w.askAt = 0, 0
	for i := range w.spots {
		s := &w.spots[i]
		s.open, s.older = false, false
		if s.voted != 0 {
			s.voted = 0
			w.giveBack(i, dead, rest)
		} else {
			w.ask(i) // so that it hands the name to the fresh one
		}
	}
}

// rest is for how long votes are to be left alone that are given back: if somebody
// else has a quorum, so that he can join.
func (w *Waiter) rest() time.Duration {
	for i := range w.spots {
		s, count := w.spots[i], 0
		for _, other := range w.spots {
			if s.holder != "" && other.holder == s.holder {
				count++
			}
		}
		if count >= w.cfg.Quorum {
			return min(s.remaining, maxRest)
		}
	}
	return 0
}

// giveBack has a node take back what it gave to a dead attempt.
func (w *Waiter) giveBack(node, dead int, rest time.Duration) {
	s := &w.spots[node]
	s.returns = true
	s.told = w.ticket > 0
	s.beat++
	s.returnBeat = s.beat
	w.effects = append(w.effects, LineEffect{Kind: GiveBack, Node: node, Attempt: dead, Beat: s.beat, Rest: rest})
}

// ask asks a node, when it has answered what it was asked before.
func (w *Waiter) ask(node int) {
	s := &w.spots[node]
	s.askAt = 0
	if s.again = s.asked || s.returns; s.again {
		return
	}
	s.asked, s.told = true, w.ticket > 0
	s.beat++
	s.askBeat = s.beat
	w.effects = append(w.effects, LineEffect{Kind: Ask, Node: node, Attempt: w.attempt, Beat: s.beat})
}

// watchReach notes since when too few nodes have answered.
func (w *Waiter) watchReach(now Instant) {
	heard := 0
	for i := range w.spots {
		if s := &w.spots[i]; s.ticket > 0 && !s.silent {
			heard++
		}
	}
	if heard >= w.cfg.Quorum {
		w.below = now
	}
}

// settle takes in that what was asked with heartbeat beat is over.
func (s *spot) settle(beat uint64) {
	if beat == s.askBeat {
		s.asked, s.open = false, false
	}
}

// sentAt is when heartbeat beat left, zero if that is too long ago to count.
func (s *spot) sentAt(beat uint64) Instant {
	for _, b := range s.sent {
		if b.beat == beat {
			return b.at
		}
	}
	return 0
}
