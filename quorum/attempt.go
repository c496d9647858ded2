package quorum

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/answer"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// phase is where an attempt stands.
type phase uint8

const (
	voting    phase = iota // the round is open
	waiting                // in line
	undoing                // lost: votes are being given back
	holding                // won: this is a lease
	ended                  // the lease has ended by itself
	releasing              // the lease is being, or has been, given back
	moved                  // the lease was moved out by Handle
)

// attempt is one random id on all nodes: first a round, or a place in line, then, if
// that is won, a lease. Operations on one node follow each other: the next leaves after the
// answer, or the silence, of the one before. The methods that peers call move
// it on; nothing in it waits.
type attempt struct {
	backend *Backend
	req     backend.Request
	id      string
	timeout time.Duration
	begun   core.Instant
	leaps   uint64 // of backend.leaps, those that are known

	mu    sync.Mutex
	phase phase
	lanes []lane
	round *core.Round
	// settled is closed when the round is won, or is lost and has heard enough
	// to say why.
	settled chan struct{}
	told    bool   // settled is closed
	place   *place // in line, nil for one that does not stand there
	lease
	release
	// after is what to do once the lock is released: calls into foreign code.
	after []func()
}

// lane is an attempt at one node.
type lane struct {
	// task is the operation under way, nil if the node owes nothing.
	task *task
	// next wait for task to end.
	next []*task
	// touched: an operation that takes was sent, so the node may have our key.
	touched bool
	// freed: the node has answered since that it does not.
	freed bool
	// inLine: the node answered last that our waiter stands in line, and has nothing. What
	// takes it out of the line is sent after that.
	inLine bool
	// ends is by when, in any case, it does not any more.
	ends core.Instant
	vote backend.Vote
}

func (b *Backend) newAttempt(r backend.Request, id string) *attempt {
	a := &attempt{
		backend: b, req: r, id: id,
		timeout: b.cfg.timeout(r.TTL), begun: b.clock.Now(), leaps: b.leaps.Load(),
		lanes:   make([]lane, len(b.peers)),
		settled: make(chan struct{}),
	}
	for i, p := range b.peers {
		a.lanes[i].vote = backend.Vote{Node: p.node.Name(), Outcome: backend.OutcomeUnasked}
	}
	return a
}

// start asks all nodes for their votes, with the operation first.
func (b *Backend) start(r backend.Request, id string, first node.Op) *attempt {
	a := b.newAttempt(r, id)
	a.round = core.NewRound(core.RoundConfig{
		Nodes: len(b.peers), Quorum: b.cfg.Quorum, TTL: r.TTL, MinValidity: leastValidity(r), Drift: b.drift(),
	})
	a.mu.Lock()
	defer a.unlock()
	for i := range b.peers {
		if a.phase == voting {
			a.send(i, first)
		} else {
			// Nodes that cannot be reached, or do not vote, have decided it. This one
			// may have forgotten meanwhile, and its quarantine should not wait for
			// theirs to end.
			b.peers[i].lookAgainUnasked()
		}
	}
	return a
}

func (b *Backend) drift() core.Drift {
	return core.Drift{Rate: b.cfg.DriftRate, Floor: b.cfg.DriftFloor}
}

// send has op carried out at node i, after what is under way there.
func (a *attempt) send(i int, op node.Op) {
	a.enqueue(&task{op: op, sink: a, lane: i, timeout: a.timeout, until: a.backend.clock.Now().Add(undoFor)})
}

// enqueue has t carried out after what is under way at its node, or waits to be. It
// takes the place of what asks for the same and has not left.
func (a *attempt) enqueue(t *task) {
	l := &a.lanes[t.lane]
	if l.task == nil && len(l.next) == 0 {
		a.submit(t)
		return
	}
	same := func(other *task) bool { return other.op.Kind == t.op.Kind && other.op.ID == t.op.ID }
	if i := slices.IndexFunc(l.next, same); i >= 0 {
		l.next[i] = t
	} else {
		l.next = append(l.next, t)
	}
}

func (a *attempt) submit(t *task) {
	a.lanes[t.lane].task = t
	a.backend.begun()
	if err := a.backend.peers[t.lane].submit(t); err != nil {
		ended := a.end(t.lane)
		a.failed(t, err, false, a.backend.clock.Now(), false)
		a.proceed(t.lane)
		ended()
	}
}

// end notes that the operation under way at node i is over. The function it
// returns is to be called when what follows from that has begun: Close must not
// find the backend idle in between.
func (a *attempt) end(i int) func() {
	a.lanes[i].task = nil
	return a.backend.ended
}

// proceed sends what waited for the operation that is over at node i.
func (a *attempt) proceed(i int) {
	for l := &a.lanes[i]; l.task == nil && len(l.next) > 0; {
		t := l.next[0]
		l.next = l.next[1:]
		if t.op.Kind == node.Release && !l.touched {
			a.count(i, confirmed) // what was to be released never left
		} else {
			a.submit(t)
		}
	}
	a.tellIdle()
}

// depart is told that t is about to be written. What takes is no longer wanted
// once the attempt is past it: then it never was sent.
func (a *attempt) depart(t *task) bool {
	a.mu.Lock()
	defer a.unlock()
	l := &a.lanes[t.lane]
	now := a.backend.clock.Now()
	if !a.wants(t.op) {
		t.settled = true
		if l.task == t {
			defer a.end(t.lane)()
			a.failed(t, errUnwanted, false, now, false)
			a.proceed(t.lane)
		}
		return false
	}
	if t.guarded() {
		l.touched, l.freed, l.inLine, l.ends = true, false, false, now.Add(undoFor+a.longest())
	}
	switch {
	case t.op.Place.Beat == 0:
	case a.phase == waiting:
		a.stepLine(now, core.LineEvent{Kind: core.Left, Node: t.lane, Beat: t.op.Place.Beat, Sent: now})
	default: // what gives back would enter a waiter that is gone
		t.op = a.releaseOf(t.op.ID)
	}
	return true
}

// longest is for how long a node may keep something for the attempt after it was asked:
// the lease, or a place in line and then what is handed over.
func (a *attempt) longest() time.Duration {
	if a.phase == waiting {
		return lineTimes.Life + max(lineTimes.Assign, a.req.TTL)
	}
	return a.req.TTL
}

// wants reports whether op still serves a purpose.
func (a *attempt) wants(op node.Op) bool {
	switch op.Kind {
	case node.Acquire, node.Replace:
		// A late grant is still a node more; and a lost round may need the answer to
		// know who holds the name.
		return a.phase == voting || a.phase == holding || !a.told
	case node.Raise:
		return a.phase == voting || a.phase == waiting && op.ID == a.id
	case node.Wait:
		return a.phase == waiting
	case node.Extend, node.Join:
		return a.phase == holding
	}
	return true
}

var (
	errUnwanted = errors.New("no longer wanted")
	errLeapt    = errors.New("clock leapt ahead")
)

// answer takes in a node's answer.
func (a *attempt) answer(t *task, ans node.Answer, at core.Instant) {
	a.mu.Lock()
	defer a.unlock()
	late := a.lanes[t.lane].task != t
	if !late {
		defer a.end(t.lane)()
	}
	if p := a.backend.peers[t.lane]; t.guarded() && p.leaptSince(t.sent) { // another call has just noticed
		if !late {
			a.failed(t, errLeapt, true, at, true)
			a.proceed(t.lane)
		}
		return
	}
	if ans.Token != 0 && (t.op.Kind == node.Acquire || t.op.Kind == node.Wait || t.op.Kind == node.Replace) {
		a.backend.saw(ans.Token)
	}
	switch t.op.Kind {
	case node.Acquire, node.Replace:
		a.voted(t, ans, at)
	case node.Wait:
		a.placed(t, ans, at)
	case node.Raise:
		a.raised(t, ans.Code == node.Done, at)
	case node.Extend, node.Join:
		a.renewed(t, ans, at)
	case node.Release:
		a.freed(t, ans, at)
	}
	a.proceed(t.lane)
}

// fail takes in that a node did not answer.
func (a *attempt) fail(t *task, err error, sent bool, at core.Instant) {
	a.mu.Lock()
	defer a.unlock()
	if a.lanes[t.lane].task != t {
		// Told before. But a release that was silent may have been lost with the
		// connection that carried it.
		if t.op.Kind == node.Release {
			a.repeatRelease(t)
		}
		return
	}
	defer a.end(t.lane)()
	a.failed(t, err, sent, at, true)
	a.proceed(t.lane)
}

// failed moves the attempt on after an operation without an answer. queued tells
// that the peer had taken it.
func (a *attempt) failed(t *task, err error, sent bool, at core.Instant, queued bool) {
	switch t.op.Kind {
	case node.Acquire, node.Replace:
		a.notVoted(t, err, sent, at)
	case node.Wait:
		a.notPlaced(t, err, at)
	case node.Raise:
		a.raised(t, false, at)
	case node.Extend, node.Join:
		a.notRenewed(t, err, at)
	case node.Release:
		a.notFreed(t, err, queued, at)
	}
}

// voted takes in the answer to the request for a vote.
func (a *attempt) voted(t *task, ans node.Answer, at core.Instant) {
	l := &a.lanes[t.lane]
	l.vote = vote(l.vote.Node, ans, at.Sub(t.sent))
	l.freed = ans.Code != node.Granted
	a.byClock = a.byClock || ans.ByClock
	if a.phase == voting || a.phase == undoing {
		a.step(at, answer.Vote(ans, t.lane, t.sent))
		return
	}
	if ans.Code != node.Granted {
		return
	}
	// A grant that came after the decision is one node more for a lease that
	// lives, and has to go with one that does not.
	switch a.phase {
	case holding:
		a.holding.Ack(at, t.lane, t.sent, a.req.TTL)
		a.rearm()
	case releasing, ended:
		a.send(t.lane, a.releaseOf(a.id))
	}
}

// noteNoVote notes why a node gave no vote.
func (a *attempt) noteNoVote(t *task, err error, at core.Instant) {
	l := &a.lanes[t.lane]
	l.vote = backend.Vote{Node: l.vote.Node, Outcome: backend.OutcomeFailed, Err: err}
	var q *quarantinedError
	switch {
	case err == nil:
		l.vote.Outcome = backend.OutcomeSilent
	case err == errUnwanted:
		l.vote.Outcome, l.vote.Err = backend.OutcomeUnasked, nil
	case errors.As(err, &q):
		l.vote.Outcome, l.vote.Remaining = backend.OutcomeQuarantined, q.left
	}
	if t.sent != 0 {
		l.vote.Took = at.Sub(t.sent)
	}
}

func (a *attempt) notVoted(t *task, err error, sent bool, at core.Instant) {
	a.noteNoVote(t, err, at)
	if a.phase == voting || a.phase == undoing {
		a.step(at, answer.NoVote(t.lane, sent))
	}
	if a.phase == voting && errors.Is(err, backend.ErrMismatch) {
		// Somebody runs these nodes under another configuration: the quorums of
		// his clients and ours need not share a node.
		a.apply(append([]core.Effect(nil), a.round.GiveUp()...))
	}
}

// raised takes in the outcome of a raise.
func (a *attempt) raised(t *task, ok bool, at core.Instant) {
	switch a.phase {
	case voting, undoing:
		if a.round != nil {
			a.step(at, answer.Raise(t.lane, ok))
		}
	case waiting:
		ev := a.notInLine(t)
		if ok {
			ev.Kind = core.LiftedTo
		}
		a.stepLine(at, ev)
	}
}

// step moves the round on and carries out what it wants.
func (a *attempt) step(at core.Instant, ev core.Event) {
	a.voidVotes(at)
	effects := append([]core.Effect(nil), a.round.Step(at, ev)...)
	a.apply(effects)
}

// settle tells the caller when there is enough to tell. A round of an even number
// of nodes is lost before a quorum has refused: who holds the name, if it is one,
// takes more answers than that.
func (a *attempt) settle() {
	if a.told || a.phase == voting || (a.phase == undoing && !a.heardEnough()) {
		return
	}
	a.tell()
}

// tell wakes the caller.
func (a *attempt) tell() {
	if !a.told {
		a.told = true
		close(a.settled)
	}
}

// heardEnough reports whether further answers would not change what the lost
// round says of the name.
func (a *attempt) heardEnough() bool {
	open, answered, most := 0, 0, 0
	waiters := 0
	holders := make(map[string]int, 2)
	for i, l := range a.lanes {
		switch l.vote.Outcome {
		case backend.OutcomeUnasked:
			if a.lanes[i].task != nil {
				open++
			}
		case backend.OutcomeGranted:
			answered++
		case backend.OutcomeRefused:
			answered++
			if l.vote.Err == errWaiting {
				waiters++
				continue
			}
			holders[l.vote.Holder]++
			most = max(most, holders[l.vote.Holder])
		}
	}
	most += waiters
	quorum := a.backend.cfg.Quorum
	return open == 0 || most >= quorum || answered+open < quorum ||
		(answered >= quorum && most+open < quorum)
}

// giveUp ends the round for reasons of the caller's, unless it is decided. It
// reports whether it was won.
func (a *attempt) giveUp() bool {
	a.mu.Lock()
	defer a.unlock()
	switch a.phase {
	case voting:
		a.apply(append([]core.Effect(nil), a.round.GiveUp()...))
	case waiting:
		a.leave()
	}
	a.told = true // nobody waits for it any more
	return a.phase != undoing
}

// apply carries out what the round wants, the decision first: what is sent
// afterwards depends on it.
func (a *attempt) apply(effects []core.Effect) {
	if a.phase == voting {
		switch a.round.Verdict() {
		case core.Won:
			a.win()
		case core.Lost:
			a.phase = undoing
			a.heir = a.backend.propose()
		}
	}
	a.settle()
	for _, e := range effects {
		switch e.Kind {
		case core.Raise:
			a.send(e.Node, a.raiseOp(e.Stored, e.Token))
		case core.Undo:
			a.send(e.Node, a.releaseOf(a.id))
		}
	}
}

func (a *attempt) raiseOp(stored, token uint64) node.Op {
	return node.Op{Kind: node.Raise, Name: a.req.Name, ID: a.id, Stored: stored, Token: token}
}

func (a *attempt) extendOp() node.Op {
	return node.Op{Kind: node.Extend, Name: a.req.Name, ID: a.id, TTL: a.req.TTL.Milliseconds()}
}

// releaseOf releases what the attempt, or one of the place's with that id, may have at
// a node, and leaves the line there.
func (a *attempt) releaseOf(id string) node.Op {
	if a.heir == 0 {
		a.heir = a.backend.propose()
	}
	op := node.Op{Kind: node.Release, Name: a.req.Name, ID: id, Proposal: a.heir}
	if a.place != nil {
		op.Place.Waiter = a.place.waiter
	}
	return op
}

// unlock releases the lock and makes the calls that waited for it.
func (a *attempt) unlock() {
	after := a.after
	a.after = nil
	a.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// later makes a call once the lock is released.
func (a *attempt) later(f func()) { a.after = append(a.after, f) }

// mayRemain reports whether some node may have a key of the attempt.
func (a *attempt) mayRemain() bool {
	now := a.backend.clock.Now()
	for _, l := range a.lanes {
		if l.touched && !l.freed && !l.inLine && now < l.ends {
			return true
		}
	}
	return false
}

// votes returns what each node answered so far.
func (a *attempt) votes() []backend.Vote {
	votes := make([]backend.Vote, len(a.lanes))
	for i, l := range a.lanes {
		votes[i] = l.vote
		if l.touched && l.vote.Outcome == backend.OutcomeUnasked {
			votes[i].Outcome = backend.OutcomeOpen
		}
	}
	return votes
}

// vote says in the public words what a node answered.
func vote(name string, ans node.Answer, took time.Duration) backend.Vote {
	v := backend.Vote{
		Node: name, Outcome: backend.OutcomeRefused, Took: took,
		Holder: ans.Holder, Owner: ans.Owner, Remaining: remaining(ans),
	}
	switch ans.Code {
	case node.Granted, node.Done:
		v.Outcome = backend.OutcomeGranted
	case node.WrongType:
		v.Err = fmt.Errorf("%w: it is no string", backend.ErrForeignKey)
	case node.Foreign:
		v.Err = errForeignHolder
	case node.Broken:
		v.Err = errBroken
	case node.Waiting:
		v.Err = errWaiting
	case node.Stale:
		v.Outcome, v.Err = backend.OutcomeFailed, errStale
	case node.NoGuard:
		v.Outcome, v.Err = backend.OutcomeFailed, errNoGuard
	case node.Failed:
		v.Outcome, v.Err = backend.OutcomeFailed, fmt.Errorf("node: %s", ans.Err)
		if ans.Denied {
			v.Err = notPermitted(v.Err)
		}
	}
	return v
}

// remaining is how long a holder's lease lasts, -1 for ever. A foreign key may
// have longer than a Duration can hold.
func remaining(ans node.Answer) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	if ans.Remaining < 0 {
		return -1
	}
	return time.Duration(min(ans.Remaining, longest.Milliseconds())) * time.Millisecond
}
