package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/answer"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

var errWaiting = errors.New("others wait for it")

// place is the part of an attempt that stands in line: core.Waiter decides, this
// carries out. Such an attempt has one id after the other, until one of them is a
// lease; what comes for the earlier ones is given back. All of it is guarded by the
// attempt's lock.
type place struct {
	// waiter names the place on the nodes, the same all the time.
	waiter string
	// stem is what the ids of the attempts begin with; the number of the attempt
	// follows. So none of them has to be remembered.
	stem string
	wait *core.Waiter
	// timer does what is due: heartbeats, and asking again.
	timer *time.Timer
	// arrival is the number that the ticket is drawn from, the same on all nodes.
	arrival uint64
	// ahead is how many stand before it at each node, -1 if that is not known.
	ahead []int
	// news tells the caller that there is something to say of the wait.
	news chan struct{}
}

// stemDigits and numberDigits make up an id.
const (
	stemDigits   = 24
	numberDigits = 8
)

// id names an attempt of the place.
func (p *place) id(number int) string { return fmt.Sprintf("%s%0*x", p.stem, numberDigits, number) }

// own reports whether id is an attempt of the place, and which.
func (p *place) own(id string) (number int, own bool) {
	digits, own := strings.CutPrefix(id, p.stem)
	n, err := strconv.ParseUint(digits, 16, 4*numberDigits)
	return int(n), own && err == nil
}

// standInLine begins to wait for the name in r, on all nodes that can be listened to.
func (b *Backend) standInLine(r backend.Request) *attempt {
	a := b.newAttempt(r, "")
	a.mu.Lock()
	defer a.unlock()
	p := &place{waiter: newID(), stem: newID()[:stemDigits], news: make(chan struct{}, 1), arrival: b.propose()}
	p.ahead = slices.Repeat([]int{-1}, len(b.peers))
	a.phase, a.place, a.id = waiting, p, p.id(0)
	b.enter(a)
	for _, peer := range b.peers {
		peer.listen(a)
	}
	times := core.DefaultLineTimes(a.timeout)
	times.Enough = min(times.Enough, r.TTL/2)
	w, effects := core.NewWaiter(core.RoundConfig{
		Nodes: len(b.peers), Quorum: b.cfg.Quorum, TTL: r.TTL, Drift: b.drift(),
	}, times, a.begun)
	p.wait = w
	p.timer = time.AfterFunc(w.Next().Sub(a.begun), a.tick)
	a.follow(effects)
	return a
}

// tick does what is due.
func (a *attempt) tick() {
	a.mu.Lock()
	defer a.unlock()
	if a.phase == waiting {
		a.tellWait()
		a.follow(a.place.wait.Tick(a.backend.clock.Now()))
	}
}

// stir has node i asked at once.
func (a *attempt) stir(i int) {
	a.mu.Lock()
	defer a.unlock()
	a.stepLine(a.backend.clock.Now(), core.LineEvent{Kind: core.Stirred, Node: i})
}

// stepLine moves the wait on, and carries out what it wants.
func (a *attempt) stepLine(at core.Instant, ev core.LineEvent) {
	if a.phase != waiting {
		return
	}
	a.voidVotes(at)
	a.follow(a.place.wait.Step(at, ev))
}

// follow carries out what the wait wants, the win first: what is sent afterwards
// depends on it.
func (a *attempt) follow(effects []core.LineEffect) {
	if a.phase != waiting {
		return
	}
	p := a.place
	if id := p.id(p.wait.Attempt()); id != a.id {
		a.id, a.byClock = id, false
	}
	if p.wait.Won() {
		a.winInLine()
	}
	proposal := uint64(0)
	for _, e := range slices.Clone(effects) {
		if proposal == 0 {
			proposal = a.backend.propose() // the same for all, so that their numbers agree
		}
		if e.Kind != core.Ask || a.phase == waiting {
			a.send(e.Node, a.lineOp(e, proposal))
		}
	}
	if a.phase != waiting {
		return
	}
	now := a.backend.clock.Now()
	if p.wait.OutOfReach(now) {
		a.tell()
		return
	}
	p.timer.Reset(max(p.wait.Next().Sub(now), 0))
}

// lineOp is the operation that carries out what the wait wants at a node.
func (a *attempt) lineOp(e core.LineEffect, proposal uint64) node.Op {
	p := a.place
	op := node.Op{
		Kind: node.Wait, Name: a.req.Name, ID: p.id(e.Attempt), Mode: node.Mode(a.req.Mode), Owner: a.req.Owner,
		Proposal: proposal, Place: node.Place{
			Waiter: p.waiter, Client: a.backend.id, Ticket: p.wait.TicketAt(e.Node), Beat: e.Beat,
		},
	}
	switch e.Kind {
	case core.Ask:
		op.TTL = a.req.TTL.Milliseconds()
		if p.wait.Ticket() == 0 {
			op.Proposal = p.arrival
		}
	case core.GiveBack:
		op.Kind, op.NewID, op.Rest = node.Release, a.id, e.Rest.Milliseconds()
	case core.LiftTo:
		return a.raiseOp(e.Stored, e.Token)
	case core.Leave:
		return a.releaseOf(op.ID)
	}
	return op
}

// placed takes in the answer to a Wait.
func (a *attempt) placed(t *task, ans node.Answer, at core.Instant) {
	if a.phase != waiting {
		if ans.Code == node.Granted {
			a.gotLate(t.lane, t.op.ID, t.sent.Add(a.req.TTL))
		}
		return
	}
	l := &a.lanes[t.lane]
	l.vote = vote(l.vote.Node, ans, at.Sub(t.sent))
	l.inLine = ans.Ticket > 0 && ans.Code != node.Granted
	if ans.Ticket > 0 && a.place.ahead[t.lane] != ans.Ahead {
		a.place.ahead[t.lane] = ans.Ahead
		a.tellWait()
	}
	number, _ := a.place.own(t.op.ID)
	ev := answer.Line(t.op, ans, t.lane, number, a.place.own)
	if ans.Code == node.Foreign && ans.Ahead == 0 {
		ev.Again = at.Add(askForeign + time.Duration(random()%uint64(askForeign)))
	}
	a.noteClock(t.op.ID, ans.Code == node.Granted && ans.ByClock)
	a.stepLine(at, ev)
	a.despair()
}

// askForeign is how often, at least, the first in line asks for a name that a client
// has that is not ours: it hands nothing over. At most twice as long.
const askForeign = 50 * time.Millisecond

// notPlaced takes in that a node did not answer a Wait.
func (a *attempt) notPlaced(t *task, err error, at core.Instant) {
	if a.phase == waiting {
		a.noteNoVote(t, err, at)
		a.stepLine(at, a.notInLine(t))
		a.despair()
	}
}

// notInLine is what it is to the wait that a node did not do what t asks for.
func (a *attempt) notInLine(t *task) core.LineEvent {
	number, _ := a.place.own(t.op.ID)
	return answer.NotInLine(t.op, t.lane, number)
}

// pushed takes in that node i has handed the name over.
func (a *attempt) pushed(i int, push node.Push, f faith) {
	a.mu.Lock()
	defer a.unlock()
	now := a.backend.clock.Now()
	number, own := a.place.own(push.ID)
	switch {
	case a.phase == holding && f == worthless && push.ID == a.id: // does not count, and ends by itself
	case a.phase != waiting, !own:
		a.gotLate(i, push.ID, now)
	case f == counts:
		a.lanes[i].inLine = false
		if push.ID == a.id {
			a.lanes[i].vote = backend.Vote{Node: a.lanes[i].vote.Node, Outcome: backend.OutcomeGranted}
		}
		a.noteClock(push.ID, push.ByClock)
		a.stepLine(now, answer.Pushed(push, i, number))
	case f == inDoubt:
		a.stepLine(now, core.LineEvent{Kind: core.Stirred, Node: i})
	default:
		a.stepLine(now, core.LineEvent{Kind: core.Distrusted, Node: i, Attempt: number})
	}
}

// noteClock notes that a number that the present attempt was given rests on a clock.
func (a *attempt) noteClock(id string, byClock bool) {
	a.byClock = a.byClock || byClock && id == a.id
}

// gotLate takes in what node i has given to an attempt of the place, until ends at
// least, after the wait was over. It is one node more for the lease, or goes back.
func (a *attempt) gotLate(i int, id string, ends core.Instant) {
	switch {
	case id != a.id || a.phase != holding && a.phase != moved:
		if id == a.id {
			a.lanes[i].freed = false
		}
		a.send(i, a.releaseOf(id))
	case a.phase == holding && !a.holding.Held(i):
		// It was given for a short time only, and counts once it is extended.
		a.holding.Join(i, ends)
		if a.renewal != nil {
			a.send(i, a.extendOp())
		}
	}
}

// winInLine makes the attempt a lease. What was handed over lasts for a short time only.
func (a *attempt) winInLine() {
	a.round, a.begun = a.place.wait.Round(), a.backend.clock.Now()
	a.endWait()
	a.brief = true
	a.win()
	a.tell()
}

// leave gives the wait up.
func (a *attempt) leave() {
	a.phase = undoing
	a.endWait()
	a.backend.quit(a)
	a.sendReleases()
}

func (a *attempt) endWait() {
	a.place.timer.Stop()
	a.backend.stood(a.req.Name)
	for _, p := range a.backend.peers {
		p.unlisten(a)
	}
}

// despair ends a wait that can come to nothing.
func (a *attempt) despair() {
	if a.phase == waiting && a.readVotes().fatal != nil {
		a.tell()
	}
}

// tellWait tells the caller, if it wants to know, that there is something to say.
func (a *attempt) tellWait() {
	if a.req.OnWait == nil {
		return
	}
	select {
	case a.place.news <- struct{}{}:
	default: // it has not heard of the last yet
	}
}

// position is how many stand before the attempt, at a quorum of nodes no more; -1 while
// fewer have told.
func (a *attempt) position() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := slices.DeleteFunc(slices.Clone(a.place.ahead), func(n int) bool { return n < 0 })
	if len(known) < a.backend.cfg.Quorum {
		return -1
	}
	slices.Sort(known)
	return known[a.backend.cfg.Quorum-1]
}

// mayStand reports whether the caller should stand in line, after an attempt that was
// lost. Who bounds its attempts tries them one after the other. And a line is of no use
// where it cannot be heard of, or where votes are missing that time will bring.
func (w *waiter) mayStand(v verdict) bool {
	return w.waits() && v.answered && !v.quarantined
}

// waits reports whether the caller would stand in line, if that is of use.
func (w *waiter) waits() bool {
	return !w.req.NoWait && w.req.MaxAttempts == 0 && w.backend.clock.Now() >= w.polls
}

// stand waits in line. It returns neither a lease nor an error if too few nodes can be
// reached for that.
func (w *waiter) stand(ctx context.Context) (*attempt, error) {
	b := w.backend
	a := b.standInLine(w.req)
	stopped := w.await(a)
	if a.giveUp() {
		return w.lengthen(ctx, a)
	}
	w.mayRemain() // forget old ones
	w.undoing = append(w.undoing, a)
	v := a.verdict()
	w.notice(v)
	switch {
	case stopped:
		w.held = w.held || v.held
		return nil, w.failed(v, w.reasons(ctx)...)
	case v.fatal != nil:
		return nil, w.failed(v, v.fatal)
	}
	now := b.clock.Now()
	w.held = false
	if w.outage == 0 {
		w.outage = now.Add(-lineTimes.Reach)
	}
	w.polls = now.Add(lineTimes.Reach)
	return nil, nil
}

// await waits until a, which stands in line, is decided, or there is reason to stop.
func (w *waiter) await(a *attempt) (stopped bool) {
	for {
		select {
		case <-a.settled:
			return false
		case <-a.place.news:
			if position := a.position(); position >= 0 {
				w.tell(a.verdict(), position)
			}
		case <-w.limit.Done():
			return true
		case <-w.backend.closing.Done():
			return true
		}
	}
}

// lengthen waits for the extension of a lease that was handed over, if the caller wants
// more than there is left of it.
func (w *waiter) lengthen(ctx context.Context, a *attempt) (*attempt, error) {
	if a.left() >= w.req.MinValidity {
		return a, nil
	}
	if err := a.Extend(w.limit); err == nil && a.left() >= w.req.MinValidity {
		return a, nil
	}
	_ = a.Release(ctx)
	if w.limit.Err() == nil && !w.backend.isClosed() {
		return nil, nil // lost, or cut off: the caller goes on trying
	}
	return nil, w.failed(a.verdict(), w.reasons(ctx)...)
}
