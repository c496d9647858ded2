package quorum

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

const (
	// maxInFlight bounds the calls under way on one node. While the node is near
	// there is one: the next call is the batch that gathered meanwhile.
	maxInFlight = 16
	// spacing is how long a call to a distant node is under way before another
	// one may follow it.
	spacing = time.Millisecond
	// giveUpAfter is how long after its last operation fell silent a call is
	// abandoned and the node greeted anew.
	giveUpAfter = time.Second
	// A timer that fires later than lateness says that this process gets too
	// little of its processor, or was stopped: a call is given as much time more,
	// but no more than maxNodeTimeout at once, a few times.
	lateness = 5 * time.Millisecond
	maxGrace = 5
	// undoFor is how long operations that free are kept for a node that cannot
	// be reached.
	undoFor = 2 * time.Second
)

var (
	errSilent = errors.New("node does not answer")
	errClosed = errors.New("connection closed")
)

// peer is one node as the backend sees it: a queue of operations, the batches
// under way, and what is known of the node. All its goroutines are calls under
// way; idle, it has none.
type peer struct {
	index   int
	node    Node
	backend *Backend

	mu sync.Mutex
	// takes waits to be sent with the guard; frees needs none and goes first.
	takes, frees queue
	inFlight     int
	lastSent     core.Instant
	// stalled is since when nothing has come back although something should
	// have: a call that fell silent, or a greeting under way. Zero if all is well.
	stalled  core.Instant
	silent   bool // a call in flight has fallen silent
	shut     bool // closed for good
	kicker   *time.Timer
	sweeper  *time.Timer
	watcher  *time.Timer // watches a quarantine
	clock    core.NodeClock
	steady   *core.ClockWatch
	moved    time.Duration // how the clock moved last
	leapt    atomic.Int64  // the core.Instant at which it was last seen to have leapt ahead
	counters counters
	since    int64        // when they began anew, by the node's clock
	anew     core.Instant // when that was noticed
	distance core.Distance
	greeting
	listener listener
}

// submit queues t. An error means that it was not taken, and that nothing will
// be heard of it.
func (p *peer) submit(t *task) error {
	p.mu.Lock()
	defer p.unlock()
	now := p.backend.clock.Now()
	if p.shut || (t.guarded() && p.backend.isClosed()) {
		return errClosed
	}
	if t.guarded() {
		if err := p.unavailable(now, t); err != nil {
			return err
		}
	}
	t.queued = now
	if t.guarded() {
		p.takes.push(t)
	} else {
		p.frees.push(t)
	}
	p.kick(now)
	p.lookAgain(now)
	return nil
}

// unavailable returns why a guarded operation has no chance now.
func (p *peer) unavailable(now core.Instant, t *task) error {
	refusal := p.backend.review(p.refusal)
	switch {
	case p.ready && p.quarantine != nil && !p.quarantine.serves(t.op.Kind):
		return p.whyOut()
	case p.steady.Suspect(now) > 0:
		return p.unsteady(now)
	case refusal != nil && now < p.greetAfter:
		return refusal
	case errors.Is(refusal, backend.ErrMismatch):
		// Until the node itself has taken it back: the others would grant before.
		p.startGreeting(now)
		return refusal
	case p.lastErr != nil && now < p.greetAfter:
		return p.lastErr
	case p.stalled != 0 && now.Sub(p.stalled) > t.timeout:
		if p.lastErr != nil {
			return p.lastErr
		}
		return errSilent
	case t.op.Kind == node.Wait:
		return p.listener.whyDeaf()
	}
	return nil
}

// kick starts a call, or a greeting, if something is queued and the time is
// right; else it sees to it that it happens later.
func (p *peer) kick(now core.Instant) {
	if p.takes.empty() && p.frees.empty() {
		return
	}
	if p.stalled != 0 || !p.ready {
		p.armSweeper()
	}
	if !p.ready && p.startGreeting(now) {
		return
	}
	if !p.maySend() {
		return
	}
	limit := maxInFlight
	if !p.silent { // behind a silent call only what frees is sent, and that has to leave
		limit = p.distance.Calls(spacing, maxInFlight)
	}
	switch {
	case p.inFlight == 0, p.inFlight < limit && now.Sub(p.lastSent) >= spacing:
		p.inFlight++
		p.lastSent = now
		go p.call()
	case p.inFlight < limit && p.kicker == nil:
		p.kicker = time.AfterFunc(spacing, p.kickLater)
	}
}

// maySend reports whether anything queued may be sent in the present state of
// the node.
func (p *peer) maySend() bool {
	return (p.mayTake() && !p.takes.empty()) || (p.mayFree() && !p.frees.empty())
}

// What frees may go to a silent node, behind what took, and to one that we do
// not accept; what takes may not.
func (p *peer) mayTake() bool { return p.ready && !p.silent }
func (p *peer) mayFree() bool { return p.ready || p.refusal != nil }

// takeBatch removes what one call can carry from the queues.
func (p *peer) takeBatch() []*task {
	var batch []*task
	weight := 0
	if p.mayFree() {
		batch, weight = p.frees.take(batch, weight)
	}
	if p.mayTake() {
		batch, _ = p.takes.take(batch, weight)
	}
	return batch
}

// flight is a call under way.
type flight struct {
	tasks []*task
	timer *time.Timer
	due   core.Instant // when timer is to fire
	grace int
	done  bool
}

// call carries one batch to the node and back. inFlight counts it already.
func (p *peer) call() {
	p.mu.Lock()
	batch := p.takeBatch()
	guard := p.guard
	p.mu.Unlock()

	wanted := batch[:0]
	for _, t := range batch {
		if t.sink.depart(t) {
			wanted = append(wanted, t)
		}
	}
	if len(wanted) == 0 {
		p.land(&flight{}, nil, nil)
		return
	}
	f := &flight{tasks: wanted}
	limit := p.launch(f)
	ctx, cancel := context.WithTimeout(p.backend.ctx, limit)
	defer cancel()
	reply, err := p.node.Call(ctx, p.request(guard, f.tasks))
	p.land(f, reply, err)
}

// launch stamps the tasks of f with the time of the send, starts the clock of
// their silence, and returns how long the call may take.
func (p *peer) launch(f *flight) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.backend.clock.Now()
	shortest, longest := f.tasks[0].timeout, f.tasks[0].timeout
	for _, t := range f.tasks {
		t.sent = now
		if t.op.Kind.Counts() {
			t.op.Seen = p.counters[node.Shard(t.op.Name)]
		}
		if latest := p.clock.Latest(now.Add(t.timeout)); latest != 0 && t.op.Kind.Votes() {
			t.op.NotAfter = latest
		}
		shortest, longest = min(shortest, t.timeout), max(longest, t.timeout)
	}
	f.due = now.Add(shortest)
	f.timer = time.AfterFunc(shortest, func() { p.fallSilent(f) })
	return longest + giveUpAfter
}

func (p *peer) request(guard string, tasks []*task) *node.Call {
	ops := make([]node.Op, len(tasks))
	for i, t := range tasks {
		ops[i] = t.op
	}
	return &node.Call{
		Keys: p.backend.keys, Guard: guard, MaxTTL: p.backend.conf.MaxTTL,
		Assign: lineTimes.Assign.Milliseconds(), Life: lineTimes.Life.Milliseconds(), Ops: ops,
	}
}

// fallSilent tells the tasks of f whose time is up that the node is silent.
func (p *peer) fallSilent(f *flight) {
	p.mu.Lock()
	if f.done {
		p.mu.Unlock()
		return
	}
	now := p.backend.clock.Now()
	if late := now.Sub(f.due); late > lateness && f.grace < maxGrace {
		// It is we who stood still: the answer may wait in the socket.
		f.grace++
		late = min(late, maxNodeTimeout)
		f.due = now.Add(late)
		f.timer.Reset(late)
		p.mu.Unlock()
		return
	}
	var quiet []*task
	next := time.Duration(0)
	for _, t := range f.tasks {
		if t.settled {
			continue
		}
		if left := t.sent.Add(t.timeout).Sub(now); left > 0 {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		t.settled = true
		quiet = append(quiet, t)
	}
	if next > 0 {
		f.due = now.Add(next)
		f.timer.Reset(next)
	}
	if len(quiet) > 0 {
		p.silent = true
		if p.stalled == 0 {
			p.stalled = now
		}
		p.kick(now)
	}
	p.mu.Unlock()
	for _, t := range quiet {
		t.sink.fail(t, nil, true, now)
	}
}

// fate is what the end of a call means for one of its tasks.
type fate uint8

const (
	toTell  fate = iota // the task hears of it
	settled             // it has heard of a silence; an answer is still news
	again               // it is sent once more
)

// land takes in the end of a call and starts the next before it tells the
// tasks, so that the node works while we do.
func (p *peer) land(f *flight, reply *node.Reply, err error) {
	p.backend.noticeSleep() // what was sent before it may be long over
	p.mu.Lock()
	now := p.backend.clock.Now() // read with the lock held: ownClockMoved counts on it
	f.done = true
	if f.timer != nil {
		f.timer.Stop()
	}
	p.inFlight--
	if reply != nil {
		p.silent, p.stalled = false, 0
		p.observeClock(f.tasks[0].sent, now, reply.Time)
		p.distance.Took(now, now.Sub(f.tasks[0].sent))
	}
	if err != nil {
		err = p.asRefusal(err)
		p.lose(err)
	}
	fates := p.fates(f.tasks, reply)
	distrusted := p.unsteady(now)
	if reply != nil && distrusted == nil {
		distrusted = p.checkCounters(f.tasks, reply)
	}
	p.kick(now)
	after := p.release()
	defer after()
	for i, t := range f.tasks {
		switch {
		case fates[i] == again:
		case reply != nil && distrusted != nil && t.guarded() && fates[i] == toTell:
			t.sink.fail(t, distrusted, true, now) // whatever it granted may end early
		case reply != nil:
			t.sink.answer(t, reply.Answers[i], now)
		case fates[i] == toTell, t.op.Kind == node.Release:
			t.sink.fail(t, err, wasSent(err), now)
		}
	}
}

// fates settles the tasks of a call. Those that the node refused because it
// does not show the guard we expect are queued once more, ahead of all others,
// for the time after a new greeting.
func (p *peer) fates(tasks []*task, reply *node.Reply) []fate {
	fates := make([]fate, len(tasks))
	var strangers []*task
	for i, t := range tasks {
		unknown := reply != nil && reply.Answers[i].Code == node.NoGuard
		p.ready = p.ready && !unknown
		switch {
		case t.settled:
			fates[i] = settled
		case unknown && !t.regreeted && !p.shut:
			fates[i] = again
			t.regreeted = true
			strangers = append(strangers, t)
			continue
		}
		t.settled = true
	}
	p.takes.unshift(strangers)
	return fates
}

// wasSent reports whether a call that failed may have reached the node.
func wasSent(err error) bool {
	var c *node.CallError
	return !errors.As(err, &c) || c.Sent
}

// lose notes that a call failed: the connection is gone, or the server refuses.
// Before the next operation that takes, the node is greeted again.
func (p *peer) lose(err error) {
	p.silent, p.stalled = false, 0
	p.ready = false
	p.noteDown(err)
}

// armSweeper makes sweep run, while something waits for a node that stalls.
func (p *peer) armSweeper() {
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(minNodeTimeout/2, p.sweep)
	}
}

// sweep tells tasks that have waited too long for a node that stalls that it
// is of no use. Those that take are dropped; those that free are kept on.
func (p *peer) sweep() {
	p.mu.Lock()
	p.sweeper = nil
	now := p.backend.clock.Now()
	var quiet []*task
	waitedTooLong := func(t *task) bool {
		waited := now.Sub(max(p.stalled, t.queued))
		if waited >= t.timeout && !t.settled {
			t.settled, t.kept = true, !t.guarded()
			quiet = append(quiet, t)
		}
		return waited >= t.timeout && (t.guarded() || waited >= undoFor)
	}
	if p.stalled != 0 || !p.ready {
		p.takes.remove(waitedTooLong)
		p.frees.remove(waitedTooLong)
		p.kick(now)
	}
	err := p.lastErr
	p.mu.Unlock()
	if err == nil {
		err = errSilent
	}
	for _, t := range quiet {
		t.sink.fail(t, err, false, now)
	}
}

// close keeps the peer from ever waking up again, tells what is queued that it
// will not be sent, and closes the node.
func (p *peer) close() error {
	p.mu.Lock()
	for _, t := range []*time.Timer{p.kicker, p.sweeper, p.watcher, p.listener.linger} {
		if t != nil {
			t.Stop()
		}
	}
	p.shut = true
	now := p.backend.clock.Now()
	var left []*task
	for _, q := range []*queue{&p.takes, &p.frees} {
		q.remove(func(t *task) bool {
			if !t.settled {
				t.settled = true
				left = append(left, t)
			}
			return true
		})
	}
	p.unlock()
	err := p.node.Close()
	for _, t := range left {
		t.sink.fail(t, errClosed, false, now)
	}
	return err
}
