package quorum

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// lingerOn is how long a subscription outlives the last waiter: the next one mostly
// comes soon, and what the node has pushed to the last has still to be given back.
const lingerOn = 3 * time.Second

var errDeaf = errors.New("cannot be listened to yet")

// listener hears what a node hands to the waiters of this process: by one
// subscription, however many they are.
type listener struct {
	// waiters stand in line at the node, or want to.
	waiters map[*attempt]struct{}
	// open: the node has acknowledged the subscription. Before, nobody may stand in
	// line: the node would pass over a process that does not listen.
	open bool
	err  error // why it is not open, nil if that is not known
	// hangUp ends the subscription, nil if there is none; linger does so later.
	hangUp context.CancelFunc
	linger *time.Timer
}

// listen has the node listened to for a, which is told once it is.
func (p *peer) listen(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.listener
	l.waiters[a] = struct{}{}
	if l.linger != nil {
		l.linger.Stop()
		l.linger = nil
	}
	if l.hangUp != nil || p.shut {
		return
	}
	ctx, hangUp := context.WithCancel(p.backend.ctx)
	l.hangUp = hangUp
	p.backend.watching.Add(1)
	go func() {
		defer p.backend.watching.Done()
		p.keepListening(ctx)
	}()
}

// unlisten tells that a does not wait any more.
func (p *peer) unlisten(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.listener
	delete(l.waiters, a)
	if len(l.waiters) == 0 && l.linger == nil && !p.shut {
		l.linger = time.AfterFunc(lingerOn, p.stopListening)
	}
}

func (p *peer) stopListening() {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.listener
	if len(l.waiters) > 0 || l.hangUp == nil {
		return
	}
	l.hangUp()
	l.hangUp, l.linger, l.open, l.err = nil, nil, false, nil
}

// keepListening subscribes, and again whenever the subscription has ended, until ctx
// ends.
func (p *peer) keepListening(ctx context.Context) {
	failures := 0
	for {
		err := p.node.Listen(ctx, p.backend.keys, p.backend.id, func() {
			failures = 0
			p.hears(ctx)
		}, p.pushed)
		if !p.deaf(ctx, err) {
			return
		}
		pause := time.NewTimer(min(greetPause<<min(failures, 10), maxGreetPause))
		failures++
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// hears is told that the node has acknowledged the subscription: everybody who waits
// asks at once, in the order in which they came. What was pushed before is lost, and
// the node may have taken them out of the line.
func (p *peer) hears(ctx context.Context) {
	p.mu.Lock()
	if ctx.Err() != nil {
		p.mu.Unlock()
		return
	}
	p.listener.open, p.listener.err = true, nil
	waiters := make([]*attempt, 0, len(p.listener.waiters))
	for a := range p.listener.waiters {
		waiters = append(waiters, a)
	}
	p.mu.Unlock()
	slices.SortFunc(waiters, func(a, b *attempt) int { return cmp.Compare(a.place.arrival, b.place.arrival) })
	for _, a := range waiters {
		a.stir(p.index)
	}
}

// deaf is told that the subscription has ended, and reports whether there is to be
// another.
func (p *peer) deaf(ctx context.Context, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	p.listener.open, p.listener.err = false, err
	return true
}

// whyDeaf is why nobody can stand in line at the node, nil if everybody can.
func (l *listener) whyDeaf() error {
	if l.open {
		return nil
	}
	return cmp.Or(l.err, errDeaf)
}

// faith is what a push of a node is worth.
type faith uint8

const (
	counts    faith = iota // as a grant
	inDoubt                // the node has to be asked whether it is so
	worthless              // the node has no vote
)

// pushed takes in that the node has handed a name to a waiter of ours.
func (p *peer) pushed(push node.Push) {
	faith := p.believe(push)
	p.backend.saw(push.Token)
	if a := p.backend.inLine(push.Waiter); a != nil {
		a.pushed(p.index, push, faith)
		return
	}
	p.backend.handBack(p.index, push)
}

// believe says what a push is worth. A number that is not above what was seen of the
// counter may be that of a node that went back; or it is on time, and an answer on the
// other connection, which told of it, was faster. So the node is asked, with what was
// seen.
func (p *peer) believe(push node.Push) faith {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.backend.clock.Now()
	shard := node.Shard(push.Name)
	switch {
	case p.unsteady(now) != nil: // for longer than what was handed over lasts
		return worthless
	case !p.ready, p.quarantine != nil, push.Token <= p.counters[shard]:
		return inDoubt
	}
	p.counters[shard] = push.Token
	return counts
}

// lineTimes are the times that do not depend on what is waited for.
var lineTimes = core.DefaultLineTimes(0)

// enter has what is pushed to the waiter of a come to it, until quit. That is as long as
// the attempt may be a lease, or one that is being given back: what comes for a waiter that
// is gone is released, and a push that an answer overtook would have what is held released,
// or the release find nothing.
func (b *Backend) enter(a *attempt) {
	b.mu.Lock()
	b.lines[a.place.waiter] = a
	b.waiting[a.req.Name]++
	b.mu.Unlock()
}

// stood notes that a waiter has left the line for name.
func (b *Backend) stood(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[name]--; b.waiting[name] == 0 {
		delete(b.waiting, name)
	}
}

// crowded reports whether callers of ours stand in line for name.
func (b *Backend) crowded(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[name] > 0
}

// quit ends what enter began, if it did.
func (b *Backend) quit(a *attempt) {
	if a.place == nil {
		return
	}
	b.mu.Lock()
	delete(b.lines, a.place.waiter)
	b.mu.Unlock()
}

// inLine returns the attempt of a waiter, nil if it is gone.
func (b *Backend) inLine(waiter string) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines[waiter]
}

// handBack releases what a node has handed to a waiter that is gone.
func (b *Backend) handBack(i int, push node.Push) {
	a := b.newAttempt(backend.Request{Name: push.Name, TTL: time.Duration(push.Lease) * time.Millisecond}, push.ID)
	a.phase, a.told = undoing, true
	a.place = &place{waiter: push.Waiter}
	a.mu.Lock()
	defer a.unlock()
	a.lanes[i].touched = true
	a.send(i, a.releaseOf(push.ID))
}
