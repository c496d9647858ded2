package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// Acquire implements backend.Backend: attempt after attempt, each with a fresh
// id, until one is won or there is reason to stop. While one holder has a
// quorum, or votes are split, that reason is the caller's; if no quorum answers
// at all, it is Config.ConnectWait.
func (b *Backend) Acquire(ctx context.Context, r backend.Request) (backend.Lease, error) {
	if err := b.checkRequest(r); err != nil {
		return nil, err
	}
	w := &waiter{backend: b, op: "acquire", req: r, begun: b.clock.Now()}
	w.limit = ctx
	if r.Wait > 0 {
		var cancel context.CancelFunc
		w.limit, cancel = context.WithTimeout(ctx, r.Wait)
		defer cancel()
	}
	a, err := w.wait(ctx)
	if err != nil {
		return nil, err
	}
	w.report(a)
	return a, nil
}

// report tells of the lease that the wait has ended with.
func (w *waiter) report(a *attempt) {
	w.backend.emit(backend.Event{
		Kind: backend.EventAcquired, Name: w.req.Name, Token: a.Token(), Took: w.backend.clock.Now().Sub(w.begun),
	})
}

// checkRequest reports what in r cannot be done, before anything is sent.
func (b *Backend) checkRequest(r backend.Request) error {
	if err := b.CheckName(r.Name); err != nil {
		return err
	}
	if limits := b.Limits(); r.TTL < limits.MinTTL || r.TTL > limits.MaxTTL || r.TTL%time.Millisecond != 0 {
		return badOption("TTL %v is not between %v and %v in whole milliseconds", r.TTL, limits.MinTTL, limits.MaxTTL)
	}
	if least, margin := leastValidity(r), b.drift().Margin(r.TTL); least < 0 || least+margin >= r.TTL {
		return badOption("min validity %v and %v for drift leave nothing of the TTL of %v", least, margin, r.TTL)
	}
	return nil
}

// leastValidity is how much must be left of a lease that was not handed over.
func leastValidity(r backend.Request) time.Duration { return cmp.Or(r.MinValidity, r.TTL/2) }

// waiter is a caller of Acquire.
type waiter struct {
	backend *Backend
	op      string // as errors name it
	req     backend.Request
	// limit is the caller's context, with the wait bounded.
	limit context.Context
	begun core.Instant
	tries int
	// roundTook is how long the last round took.
	roundTook time.Duration
	// outage is since when no quorum has answered, zero while one does; split is
	// since when, outages aside, no quorum has named one holder.
	outage, split core.Instant
	// polls is until when the caller does not stand in line, because it could not.
	polls   core.Instant
	probing bool // has a place in backend.probes
	// held tells that a quorum has named one holder, and that a quorum has
	// answered ever since.
	held bool
	// quarantined says that the last attempt could have been won, had the nodes in
	// quarantine voted.
	quarantined error
	// undoing are the attempts whose votes are not known to be undone.
	undoing []*attempt
}

func (w *waiter) wait(ctx context.Context) (*attempt, error) {
	if err := w.backend.meet(w.limit, w.req.TTL); err != nil {
		return nil, w.stopped(ctx, nil)
	}
	defer w.stopProbing()
	for {
		a, err := w.once(ctx)
		if a != nil || err != nil {
			return a, err
		}
		w.tries++
	}
}

// once tries, and waits in line or for a while if that came to nothing. Where others of
// ours stand in line already it does not try: it would only be refused.
func (w *waiter) once(ctx context.Context) (*attempt, error) {
	if w.waits() && w.backend.crowded(w.req.Name) {
		return w.stand(ctx)
	}
	a, v, err := w.try(ctx)
	switch {
	case a != nil || err != nil:
		return a, err
	case w.mayStand(v):
		w.tell(v, -1)
		return w.stand(ctx)
	}
	return nil, w.pause(ctx, v)
}

// probe lets only a few callers go on trying during an outage: thousands would
// keep this process, or the nodes, too busy to come back. A caller keeps its
// place until a quorum answers. It reports whether there is a place in time.
func (w *waiter) probe() bool {
	if w.outage == 0 {
		w.stopProbing()
		return true
	}
	if w.probing {
		return true
	}
	left := w.backend.cfg.ConnectWait - w.backend.clock.Now().Sub(w.outage)
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case w.backend.probes <- struct{}{}:
		w.probing = true
	case <-timer.C:
		return false
	case <-w.limit.Done():
	case <-w.backend.closing.Done():
	}
	return true
}

func (w *waiter) stopProbing() {
	if w.probing {
		w.probing = false
		<-w.backend.probes
	}
}

// meet waits, the first time, until every node has been greeted once, for at most
// one node timeout: a node that would refuse our configuration must have had the chance
// to say so before the others grant.
func (b *Backend) meet(ctx context.Context, ttl time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if b.isClosed() {
		return backend.ErrClosed
	}
	if b.met.Load() {
		return nil
	}
	timer := time.NewTimer(b.cfg.timeout(ttl))
	defer timer.Stop()
	for _, p := range b.peers {
		p.introduce()
	}
	for _, p := range b.peers {
		select {
		case <-p.met:
		case <-timer.C:
			b.met.Store(true)
			return nil
		case <-ctx.Done():
			return ctx.Err() // the next caller has to wait, too
		}
	}
	b.met.Store(true)
	return nil
}

// try makes one attempt. It returns neither a lease nor an error if there is to be
// another one, or the caller is to stand in line.
func (w *waiter) try(ctx context.Context) (*attempt, verdict, error) {
	b := w.backend
	select {
	case b.slots <- struct{}{}:
	case <-w.limit.Done():
		return nil, verdict{}, w.stopped(ctx, backend.ErrOverloaded)
	case <-b.closing.Done():
		return nil, verdict{}, w.stopped(ctx, nil)
	}
	id := newID()
	a := b.start(w.req, id, node.Op{
		Kind: node.Acquire, Name: w.req.Name, ID: id, TTL: w.req.TTL.Milliseconds(),
		Proposal: b.propose(), Owner: w.req.Owner, Mode: node.Mode(w.req.Mode),
	})
	stopped := false
	select {
	case <-a.settled:
	case <-w.limit.Done():
		stopped = true
	case <-b.closing.Done():
		stopped = true
	}
	won := a.giveUp()
	<-b.slots
	if won {
		return a, verdict{}, nil
	}
	// If the machine was suspended meanwhile, that was no outage.
	w.roundTook = min(b.clock.Now().Sub(a.begun), b.cfg.ConnectWait/4)
	w.mayRemain() // forget old ones
	w.undoing = append(w.undoing, a)
	v := a.verdict()
	if stopped {
		w.held = w.held || v.held
		w.notice(v)
		return nil, v, w.failed(v, w.reasons(ctx)...)
	}
	if v.quarantined && w.req.NoWait {
		w.lookForHolder(&v)
	}
	b.emit(backend.Event{
		Kind: backend.EventAttemptLost, Name: w.req.Name, Took: w.roundTook, Err: w.failed(v, v.reason()),
	})
	if why := w.enough(v); why != nil {
		return nil, v, w.failed(v, why)
	}
	if !w.probe() {
		return nil, v, w.failed(v, v.reason())
	}
	return nil, v, nil
}

// enough returns why there is to be no other attempt, or nil.
func (w *waiter) enough(v verdict) error {
	now := w.backend.clock.Now()
	if v.fatal != nil {
		return v.fatal
	}
	w.notice(v)
	if v.answered {
		w.outage = 0
		w.held = w.held || v.held
	} else {
		w.held = false
		if w.outage == 0 {
			w.outage = now.Add(-w.roundTook)
		}
	}
	if v.held || v.quarantined {
		w.split = 0
	} else if v.answered && w.split == 0 {
		w.split = now.Add(-w.roundTook)
	}
	switch {
	case v.held && w.req.NoWait:
		return backend.ErrHeld
	case w.req.MaxAttempts > 0 && w.tries+1 >= w.req.MaxAttempts:
		return v.reason()
	case w.outage != 0 && now.Sub(w.outage) >= w.backend.cfg.ConnectWait:
		return v.reason()
	case w.split != 0 && v.answered && w.req.NoWait && now.Sub(w.split) >= min(w.backend.cfg.ConnectWait, max(leastValidity(w.req), minSplit)):
		return backend.ErrNoQuorum
	}
	return nil
}

// lookForHolder takes in who has the name, if nodes in quarantine say so, too: they
// keep up the leases that they still have. Who does not wait for holders has no need
// to wait for these nodes to vote, and would find the holder gone by then.
func (w *waiter) lookForHolder(v *verdict) {
	s, err := w.backend.holderOf(w.limit, w.req.Name)
	if err != nil || !s.Held || s.Foreign {
		return
	}
	v.held, v.quarantined = true, false
	v.votes, v.owner, v.remaining = s.Votes, s.Owner, s.Remaining
}

// notice takes in whether quarantines were in the way.
func (w *waiter) notice(v verdict) {
	w.quarantined = nil
	if v.quarantined {
		w.quarantined = v.reason()
	}
}

// minSplit is the least time a caller that does not wait for holders spends on
// split votes.
const minSplit = 100 * time.Millisecond

// pause waits before the next attempt.
func (w *waiter) pause(ctx context.Context, v verdict) error {
	w.tell(v, -1)
	timer := time.NewTimer(core.Backoff(w.tries, w.roundTook, v.held || v.quarantined, v.remaining, random()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.limit.Done():
	case <-w.backend.closing.Done():
	}
	return w.failed(v, w.reasons(ctx)...)
}

// tell tells the caller, if it wants to know, what stands in the way, and how many in
// line.
func (w *waiter) tell(v verdict, position int) {
	if w.req.OnWait == nil {
		return
	}
	wait := backend.Wait{
		Attempts: w.tries + 1, Position: position, Owner: v.owner, Remaining: max(v.remaining, 0),
		Err: w.failed(v, v.reason()),
	}
	for _, vote := range v.votes {
		if vote.Outcome == backend.OutcomeQuarantined {
			wait.Quarantined = append(wait.Quarantined, vote.Node)
		}
	}
	w.req.OnWait(wait)
}

// reasons says why the wait was over: the caller's context, or the bound on the
// wait, which is no error of the caller's; and what stood in the way.
func (w *waiter) reasons(ctx context.Context) []error {
	reasons := ctxReasons(ctx)
	if w.backend.isClosed() {
		if !slices.Contains(reasons, backend.ErrClosed) {
			reasons = append(reasons, backend.ErrClosed)
		}
		return reasons
	}
	if w.quarantined != nil {
		return append(reasons, w.quarantined)
	}
	if w.held {
		return append(reasons, backend.ErrHeld)
	}
	if len(reasons) == 0 {
		reasons = append(reasons, backend.ErrNoQuorum)
	}
	return reasons
}

// ctxReasons returns the error of a context that has ended, and its cause.
func ctxReasons(ctx context.Context) []error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(cause, backend.ErrClosed):
		return []error{cause} // our own doing, not the caller's
	case errors.Is(cause, err):
		return []error{cause}
	}
	return []error{err, cause}
}

// stopped is the error of a wait that ended before anything was asked.
func (w *waiter) stopped(ctx context.Context, also error) error {
	reasons := w.reasons(ctx)
	if also != nil {
		reasons = append(reasons, also)
	}
	return &backend.QuorumError{
		Op: w.op, Name: w.req.Name, Need: w.backend.cfg.Quorum, Reasons: reasons,
		MayRemain: w.mayRemain(),
	}
}

// mayRemain reports whether a key of an earlier attempt may still be on a node,
// and forgets the attempts of which none is.
func (w *waiter) mayRemain() bool {
	w.undoing = slices.DeleteFunc(w.undoing, func(a *attempt) bool {
		a.mu.Lock()
		defer a.unlock()
		return !a.mayRemain()
	})
	return len(w.undoing) > 0
}

func (w *waiter) failed(v verdict, reasons ...error) error {
	return &backend.QuorumError{
		Op: w.op, Name: w.req.Name, Need: w.backend.cfg.Quorum, Votes: v.votes, Reasons: reasons,
		MayRemain: w.mayRemain(),
	}
}

// verdict is what the votes of a lost attempt say.
type verdict struct {
	votes []backend.Vote
	// answered: a quorum answered, yes, no, or that it is in quarantine.
	answered bool
	// held: a quorum named one holder, or said that others wait; owner is its label.
	held  bool
	owner string
	// quarantined: the nodes in quarantine would have made it a quorum.
	quarantined bool
	// remaining is how long it takes, if nobody renews, until the last of the
	// holder's votes is gone, or until enough nodes have left their quarantine.
	remaining time.Duration
	// late: the quorum was there, but too late.
	late bool
	// mayRemain: some node may still have the key of the attempt.
	mayRemain bool
	// fatal is why no other attempt can do better.
	fatal error
}

// reason is the sentinel for the verdict.
func (v verdict) reason() error {
	switch {
	case v.fatal != nil:
		return v.fatal
	case v.held:
		return backend.ErrHeld
	case v.quarantined:
		return inTheWay(v.votes, v.remaining)
	case v.late:
		return fmt.Errorf("%w in time: too little of the TTL was left", backend.ErrNoQuorum)
	}
	return backend.ErrNoQuorum
}

// verdict reads the votes of an attempt that was not won.
func (a *attempt) verdict() verdict {
	a.mu.Lock()
	defer a.unlock()
	return a.readVotes()
}

func (a *attempt) readVotes() verdict {
	quorum := a.backend.cfg.Quorum
	v := verdict{votes: a.votes(), late: a.round != nil && a.round.Late(), mayRemain: a.mayRemain()}
	granted, answered, forever, open, waiters := 0, 0, 0, 0, 0
	var left []time.Duration // of quarantines
	unfit := make([]error, 0, len(v.votes))
	holders := make(map[string][]backend.Vote)
	for i, vote := range v.votes {
		switch vote.Outcome {
		case backend.OutcomeUnasked, backend.OutcomeOpen:
			if a.backend.peers[i].votes() {
				open++
			}
		case backend.OutcomeGranted:
			granted++
			answered++
		case backend.OutcomeQuarantined:
			if !isStuck(vote.Err) { // no time ends it: an outage
				answered++
			}
			left = append(left, vote.Remaining)
		case backend.OutcomeRefused:
			answered++
			if vote.Err == errWaiting {
				waiters++
				break
			}
			holders[vote.Holder] = append(holders[vote.Holder], vote)
			if isForever(vote) {
				forever++
			}
		}
		switch {
		case errors.Is(vote.Err, backend.ErrMismatch):
			v.fatal = vote.Err
		case errors.Is(vote.Err, backend.ErrUnfit):
			unfit = append(unfit, vote.Err)
		}
	}
	if len(left) > 0 {
		// Quarantines are known beforehand, and decide a round before the others
		// were asked. Those are no outage.
		granted += open
		answered += open
	}
	v.answered = answered >= quorum
	v.held = waiters >= quorum
	for _, votes := range holders {
		if votes[0].Holder != "" && len(votes)+waiters >= quorum {
			v.held = true
			v.owner = votes[0].Owner
			v.remaining = freeIn(votes)
		}
	}
	if missing := quorum - granted; !v.held && missing > 0 && missing <= len(left) {
		slices.Sort(left)
		v.quarantined, v.remaining = true, left[missing-1]
	}
	switch room := len(v.votes) - quorum; {
	case v.fatal != nil:
	case forever > room:
		v.fatal = backend.ErrForeignKey
	case len(unfit) > room:
		v.fatal = unfit[0]
	}
	return v
}

// isForever reports whether a key that is not ours will never go away by itself.
func isForever(v backend.Vote) bool {
	return errors.Is(v.Err, backend.ErrForeignKey) || (errors.Is(v.Err, errForeignHolder) && v.Remaining < 0)
}

// freeIn is the longest that a holder's votes last.
func freeIn(votes []backend.Vote) time.Duration {
	var last time.Duration
	for _, v := range votes {
		last = max(last, v.Remaining)
	}
	return last
}
