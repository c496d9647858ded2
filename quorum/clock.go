package quorum

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// move is a movement of a node's clock.
type move struct {
	at   core.Instant
	by   time.Duration
	told bool // what follows from it was done
}

// alike is how much the movements of two clocks may differ, and for how long one is
// remembered, to be taken for one of our own.
const (
	alikeBy     = 500 * time.Millisecond
	alikeWithin = 10 * time.Second
)

// lastReading is what was last read of a node's clock, and what the node had recorded
// of it, in its own words.
type lastReading struct {
	core.ClockReading
	record string
	guard  string // what the node showed
}

// readClock returns what the answer to a hello tells of the node's clock: nothing if the
// node serves no leases.
func (b *Backend) readClock(sent, received core.Instant, r node.HelloReply) lastReading {
	shown, ok := node.ParseGuard(r.Guard)
	serves := r.Standing == node.StandingOK || r.Standing == node.StandingQuarantined
	if !ok || !serves || shown.Conf == node.NoConf || r.Was != "" || b.unfit(r) != nil {
		return lastReading{}
	}
	l := lastReading{core.ReadClock(sent, received, r.Time), r.Record, r.Guard}
	l.Record = core.ParseClockRecord(r.Record)
	return l
}

// errUndecided is why a node is not welcome yet.
var errUndecided = errors.New("its clock or another one seems to have moved, and too few nodes answer to tell which")

// compareClocks takes in what a greeting tells of the clock of node i, and compares the
// clocks of all by what was recorded of them: we may have begun after one moved. It
// returns when that is decided, or cannot be, so that no node is welcome before.
func (b *Backend) compareClocks(i int, l lastReading) error {
	b.mu.Lock()
	b.readings[i] = l
	verdicts := b.judgeClocks()
	b.mu.Unlock()
	if slices.ContainsFunc(verdicts, func(v core.ClockVerdict) bool { return v.Suspect }) {
		s := b.surveyClocks() // what was read of the others may be old
		<-s.over
		if !s.decided {
			return errUndecided
		}
		return nil
	}
	b.keepRecords(verdicts)
	return nil
}

// judgeClocks compares the clocks of the nodes as they were last read. The lock is held.
func (b *Backend) judgeClocks() []core.ClockVerdict {
	readings := make([]core.ClockReading, len(b.readings))
	for i, l := range b.readings {
		readings[i] = l.ClockReading
	}
	return core.CompareClocks(b.clock.Now(), readings, b.cfg.Quorum, b.cfg.MaxTTL, b.cfg.DriftRate)
}

// keepRecords has nodes keep what is to be recorded of their clocks.
func (b *Backend) keepRecords(verdicts []core.ClockVerdict) {
	for i, v := range verdicts {
		if v.Record.At == 0 {
			continue
		}
		b.mu.Lock()
		former := b.readings[i].record
		b.readings[i].Record = v.Record // asked once
		b.mu.Unlock()
		b.peers[i].keepRecord(former, v.Record.String())
	}
}

// keepRecord has the next greeting, which begins at once, take a record to the node.
// Close waits for it: many clients live for a moment only. A node that does not keep it,
// because it is out of memory for instance, is not asked again at once: each greeting
// would begin the next.
func (p *peer) keepRecord(former, record string) {
	p.mu.Lock()
	defer p.unlock()
	now := p.backend.clock.Now()
	if p.shut || p.backend.isClosed() || now < p.recordAfter {
		return
	}
	p.recordAfter = now.Add(refusalPause)
	if p.record == "" {
		p.backend.begun()
	}
	p.former, p.record = former, record
	p.carryRecord()
}

// carryRecord begins a greeting if there is a record to take to the node.
func (p *peer) carryRecord() {
	if p.record != "" && !p.underWay {
		p.underWay = true
		go p.greet()
	}
}

// suspectClock has the node put in quarantine, unless it shows another guard by now: its
// clock has moved by so much at least, or may have. What it granted may have ended. The
// function it returns says so.
func (p *peer) suspectClock(guard string, by time.Duration) (tell func()) {
	p.mu.Lock()
	now := p.backend.clock.Now()
	p.leapt.Store(int64(now))
	p.backend.leaps.Add(1)
	if p.shut || p.suspect != "" {
		return p.release()
	}
	if p.steady.Suspect(now) == 0 { // else it was told
		p.log(slog.LevelWarn, "redlock: the clock of a node moved since it was recorded; it is put in quarantine",
			"node", p.node.Name(), "by", by)
		p.tell(backend.Event{Kind: backend.EventClockMoved, Took: by, Err: &quarantinedError{why: whyClock, left: p.backend.cfg.MaxTTL}})
	}
	p.ready, p.suspect, p.suspectAs = false, guard, node.Leapt
	p.startGreeting(now)
	return p.release()
}

// observeClock takes in what the node's clock showed.
func (p *peer) observeClock(sent, received core.Instant, micros int64) {
	p.clock.Observe(sent, micros)
	by := p.steady.Observe(sent, received, micros)
	if by == 0 {
		return
	}
	p.moved = by
	if by > 0 {
		p.leapt.Store(int64(received))
		p.backend.leaps.Add(1)
	}
	// Under the lock of the peer, which a survey takes to look at this clock: what it finds
	// taken in must be known as a movement, or the node would seem to have stood by.
	if p.backend.noteMove(p.index, move{at: received, by: by}) {
		p.after = append(p.after, func() { p.backend.surveyClocks() })
	}
}

// leaptSince reports whether what the node granted at that time may have ended.
func (p *peer) leaptSince(at core.Instant) bool { return p.leapt.Load() > int64(at) }

// unsteady returns why the node does not vote for its clock, or nil.
func (p *peer) unsteady(now core.Instant) error {
	if left := p.steady.Suspect(now); left > 0 {
		return &quarantinedError{why: whyMoved(p.moved), left: left}
	}
	return nil
}

// noteMove notes that the clock of node i moved. It may be ours that stood still: that of
// a machine that was paused from outside, for instance. The others tell. It reports
// false if it was ours, as is known by now.
func (b *Backend) noteMove(i int, m move) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.at <= b.ownMoved {
		return false
	}
	b.moves[i] = m
	return true
}

// clockSurvey is one question to all nodes for what their clocks show.
type clockSurvey struct {
	over chan struct{} // closed when it is known what is to be done
	// decided tells, then, that so many have answered that it is known which moved.
	decided bool
}

// surveyClocks has all nodes say what their clocks show, and then decides which moved.
// One survey runs at a time.
//
// Until then leases count on a node that seems to have leapt. That is sound: its vote
// for a rival is not taken meanwhile, and who does not ask the node learns of a leap no
// sooner than by the next renewal, which is later than this takes.
func (b *Backend) surveyClocks() *clockSurvey {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.survey == nil {
		b.survey = &clockSurvey{over: make(chan struct{})}
		go b.runSurvey(b.survey)
	}
	return b.survey
}

func (b *Backend) runSurvey(s *clockSurvey) {
	ctx, cancel := context.WithTimeout(b.ctx, max(maxNodeTimeout, b.cfg.NodeTimeout))
	defer cancel()
	since := make([]core.Instant, len(b.peers))
	readings := make([]lastReading, len(b.peers))
	var wg sync.WaitGroup
	for i, p := range b.peers {
		wg.Go(func() { since[i], readings[i] = p.lookAtClock(ctx) })
	}
	wg.Wait()
	after := b.decideClocks(s, since, readings)
	close(s.over) // greetings wait: a log that is stuck must not keep them back
	for _, f := range after {
		f()
	}
}

// lookAtClock asks the node for its time. It returns since when its clock has been
// watched, zero if there is nothing to compare with.
func (p *peer) lookAtClock(ctx context.Context) (since core.Instant, l lastReading) {
	sent := p.backend.clock.Now()
	r, err := p.node.Hello(ctx, node.Hello{Keys: p.backend.keys, Conf: p.backend.conf, Intent: node.Look})
	p.backend.noticeSleep()
	p.mu.Lock()
	defer p.unlock()
	if err != nil {
		return 0, l
	}
	now := p.backend.clock.Now()
	if shown, ok := node.ParseGuard(p.guard); ok && shown.Life == r.Life {
		since = p.steady.Since()
		p.observeClock(sent, now, r.Time)
	}
	return since, p.backend.readClock(sent, now, r)
}

// decideClocks decides, now that the nodes have answered or are silent, which clocks
// moved: against ours, or it was ours; and against their records. since and readings are
// what lookAtClock has returned. The calls it returns tell others of it.
func (b *Backend) decideClocks(s *clockSurvey, since []core.Instant, readings []lastReading) (after []func()) {
	b.mu.Lock()
	var verdicts []core.ClockVerdict
	heard := 0
	for _, l := range readings {
		if l.At != 0 {
			heard++
		}
	}
	// If fewer answer, a suspicion stands, and what it came from is not forgotten.
	if s.decided = heard >= b.cfg.Quorum; s.decided {
		copy(b.readings, readings)
		verdicts = b.judgeClocks()
	}
	by, own := b.ownMove(since)
	var news map[int]move
	if !own {
		news = b.untoldMoves()
		b.survey = nil // what comes up from now on is for the next
	}
	b.mu.Unlock()
	if own {
		after = b.ownClockMoved(by)
	}
	for i, m := range news {
		after = append(after, b.nodeMoved(b.peers[i], m))
	}
	for i, v := range verdicts {
		if v.Suspect {
			after = append(after, b.peers[i].suspectClock(readings[i].guard, v.Moved))
		}
	}
	b.keepRecords(verdicts)
	return after
}

// untoldMoves returns the movements that are told now. The lock is held.
func (b *Backend) untoldMoves() map[int]move {
	news := make(map[int]move)
	for i, m := range b.moves {
		if !m.told {
			news[i] = m
			m.told = true
			b.moves[i] = m
		}
	}
	return news
}

// ownMove reports whether our own clock moved, and by how much at least: if those of a
// quorum of nodes moved alike, and none that answered did not. A single node tells
// nothing.
func (b *Backend) ownMove(since []core.Instant) (by time.Duration, own bool) {
	now := b.clock.Now()
	first, count := now, 0
	var least, most time.Duration
	for _, m := range b.moves {
		if now.Sub(m.at) >= alikeWithin {
			continue
		}
		if count == 0 {
			least, most = m.by, m.by
		}
		least, most, first = min(least, m.by), max(most, m.by), min(first, m.at)
		count++
	}
	for i, s := range since {
		m, ok := b.moves[i]
		moved := ok && now.Sub(m.at) < alikeWithin
		if !moved && s != 0 && s < first {
			return 0, false
		}
	}
	return least, len(b.peers) > 1 && count >= b.cfg.Quorum && most-least < alikeBy
}

// nodeMoved takes in that the clock of a node moved, and not ours. The function it
// returns says so.
func (b *Backend) nodeMoved(p *peer, m move) (tell func()) {
	if m.by > 0 { // else leases end later there: no rival gets the vote
		for _, a := range b.leases() {
			go a.distrust(p.index) // whoever is told that one is lost keeps no other back
		}
	}
	return func() {
		err := &quarantinedError{why: whyMoved(m.by), left: b.cfg.MaxTTL}
		b.cfg.Logger.Log(b.ctx, slog.LevelWarn, "redlock: the clock of a node moved; it does not vote until it has been steady",
			"node", p.node.Name(), "by", m.by, "for", b.cfg.MaxTTL)
		b.emit(backend.Event{Kind: backend.EventClockMoved, Node: p.node.Name(), Took: m.by, Err: err})
	}
}

// ownClockMoved takes in that our own clock lost time, against the clocks of the
// nodes. No answer may be measured between its steps: the clock of its node would seem
// to have moved once more. The calls it returns tell others of it.
func (b *Backend) ownClockMoved(by time.Duration) (after []func()) {
	for _, p := range b.peers {
		p.mu.Lock()
	}
	if by > 0 {
		b.clock.Skip(by)
		after = append(after, func() { b.tellSlept(by) })
	}
	b.mu.Lock()
	b.ownMoved = b.clock.Now()
	b.survey = nil // the next one finds no move that was counted here
	clear(b.moves)
	clear(b.readings)
	b.mu.Unlock()
	for _, p := range b.peers {
		p.steady.Forget()
		after = append(after, p.release())
	}
	return after
}

// voidVotes takes back the votes of nodes whose clocks have leapt ahead since the
// round began.
func (a *attempt) voidVotes(at core.Instant) {
	leaps := a.backend.leaps.Load()
	if leaps == a.leaps {
		return
	}
	a.leaps = leaps
	for i, p := range a.backend.peers {
		switch {
		case a.lanes[i].vote.Outcome != backend.OutcomeGranted || !p.leaptSince(a.begun):
		case a.phase == waiting:
			a.follow(a.place.wait.Step(at, core.LineEvent{Kind: core.Lapsed, Node: i}))
		default:
			a.apply(append([]core.Effect(nil), a.round.Step(at, core.Event{Kind: core.Void, Node: i})...))
		}
	}
}

// distrust takes in that node i may have let the lease end.
func (a *attempt) distrust(i int) {
	a.mu.Lock()
	defer a.unlock()
	if a.phase == holding {
		a.holding.Vanish(a.backend.clock.Now(), i)
		a.checkHeld()
	}
}
