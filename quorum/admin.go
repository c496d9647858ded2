package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// survey is one operation carried out at every node, and what came of it.
type survey struct {
	backend *Backend

	mu      sync.Mutex
	votes   []backend.Vote
	answers []node.Answer
	told    []bool // by node: whether there was an outcome
	open    int
	over    bool // nobody waits any more
	done    chan struct{}
}

// ask carries op out at every node and waits for the answers, up to a node's
// timeout or ctx. It does not need the nodes to know us.
func (b *Backend) ask(ctx context.Context, op node.Op) *survey {
	s := b.newSurvey()
	for i := range b.peers {
		s.send(i, op)
	}
	s.wait(ctx)
	return s
}

// askEach is ask with another id for each node, and without the nodes that have
// none.
func (b *Backend) askEach(ctx context.Context, ids []string, op node.Op) []backend.Vote {
	s := b.newSurvey()
	for i, id := range ids {
		if id == "" {
			s.note(i, s.votes[i], node.Answer{})
			continue
		}
		op.ID = id
		s.send(i, op)
	}
	s.wait(ctx)
	votes, _ := s.result()
	return votes
}

func (b *Backend) newSurvey() *survey {
	s := &survey{
		backend: b, told: make([]bool, len(b.peers)),
		votes: make([]backend.Vote, len(b.peers)), answers: make([]node.Answer, len(b.peers)),
		open: len(b.peers), done: make(chan struct{}),
	}
	for i, p := range b.peers {
		s.votes[i] = backend.Vote{Node: p.node.Name(), Outcome: backend.OutcomeUnasked}
	}
	return s
}

// send has op carried out at node i. Close waits for the answer.
func (s *survey) send(i int, op node.Op) {
	s.backend.begun()
	t := &task{op: op, sink: s, lane: i, timeout: max(maxNodeTimeout, s.backend.cfg.NodeTimeout)}
	if err := s.backend.peers[i].submit(t); err != nil {
		s.fail(t, err, false, s.backend.clock.Now())
	}
}

func (s *survey) wait(ctx context.Context) {
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
}

// depart lets nothing leave that was given up: who asked was told that it was
// not done. A release is wanted all the same.
func (s *survey) depart(t *task) bool {
	s.mu.Lock()
	wanted := t.op.Kind == node.Release || !(s.over || s.told[t.lane])
	s.mu.Unlock()
	if !wanted {
		t.settled = true
		s.fail(t, errUnwanted, false, s.backend.clock.Now())
	}
	return wanted
}

func (s *survey) answer(t *task, a node.Answer, at core.Instant) {
	if s.note(t.lane, vote(s.name(t), a, at.Sub(t.sent)), a) {
		s.backend.ended()
	}
}

func (s *survey) fail(t *task, err error, _ bool, _ core.Instant) {
	v := backend.Vote{Node: s.name(t), Outcome: backend.OutcomeFailed, Err: err}
	if err == nil {
		v.Outcome = backend.OutcomeSilent
	}
	if s.note(t.lane, v, node.Answer{}) {
		s.backend.ended()
	}
}

func (s *survey) name(t *task) string { return s.backend.peers[t.lane].node.Name() }

// note takes in an outcome, and reports whether it is the first of its node. A
// late answer replaces a silence.
func (s *survey) note(i int, v backend.Vote, a node.Answer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.votes[i], s.answers[i] = v, a
	if s.told[i] {
		return false
	}
	s.told[i] = true
	if s.open--; s.open == 0 {
		close(s.done)
	}
	return true
}

// result returns what came of it so far.
func (s *survey) result() ([]backend.Vote, []node.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]backend.Vote(nil), s.votes...), append([]node.Answer(nil), s.answers...)
}

func (b *Backend) surveyError(op, name string, votes []backend.Vote, reasons ...error) error {
	return &backend.QuorumError{Op: op, Name: name, Need: b.cfg.Quorum, Votes: votes, Reasons: reasons}
}

// Inspect implements backend.Backend.
func (b *Backend) Inspect(ctx context.Context, name string) (backend.Status, error) {
	if err := b.CheckName(name); err != nil {
		return backend.Status{}, err
	}
	s, err := b.holderOf(ctx, name)
	if err == nil {
		s.Line, s.Waiting = b.lineOf(ctx, name)
	}
	return s, err
}

// holderOf says who has a name.
func (b *Backend) holderOf(ctx context.Context, name string) (backend.Status, error) {
	votes, answers := b.ask(ctx, node.Op{Kind: node.Inspect, Name: name}).result()
	now := b.clock.Now()
	views := make([]view, len(answers))
	for i, a := range answers {
		views[i] = view{a, b.peers[i].latest(now)}
	}
	s, answered := b.status(name, votes, views)
	if answered < b.cfg.Quorum {
		return s, b.surveyError("inspect", name, votes, append(ctxReasons(ctx), backend.ErrNoQuorum)...)
	}
	return s, nil
}

// Break implements backend.Backend. It looks first, and then breaks what it saw:
// a request that arrives late does not hit the next holder.
func (b *Backend) Break(ctx context.Context, name string, now bool) error {
	if err := b.CheckName(name); err != nil {
		return err
	}
	votes, seen := b.ask(ctx, node.Op{Kind: node.Inspect, Name: name}).result()
	ids := make([]string, len(seen))
	broken, absent, foreign := 0, 0, 0
	for i, a := range seen {
		switch a.Code {
		case node.Absent:
			absent++
		case node.Held, node.Broken:
			ids[i] = a.Holder
		case node.Foreign, node.WrongType:
			foreign++
		}
	}
	for i, v := range b.askEach(ctx, ids, node.Op{Kind: node.Break, Name: name, Now: now}) {
		if ids[i] == "" {
			continue
		}
		votes[i] = v
		if v.Outcome == backend.OutcomeGranted {
			broken++
		}
	}
	switch {
	case max(broken, absent) > len(seen)-b.cfg.Quorum:
		// No quorum is left to extend at, whatever is joined meanwhile; or there
		// was none that held it.
		return nil
	case foreign > len(seen)-b.cfg.Quorum:
		return b.surveyError("break", name, votes, backend.ErrForeignKey)
	}
	return b.surveyError("break", name, votes, append(ctxReasons(ctx), backend.ErrNoQuorum)...)
}

// ReleaseHandle implements backend.Backend.
func (b *Backend) ReleaseHandle(ctx context.Context, handle string) error {
	h, err := backend.DecodeHandle(handle)
	if err != nil {
		return err
	}
	if err := b.CheckName(h.Name); err != nil {
		return err
	}
	votes, answers := b.ask(ctx, node.Op{Kind: node.Release, Name: h.Name, ID: h.ID, Proposal: b.propose()}).result()
	freed, free := 0, 0
	for _, a := range answers {
		switch a.Code {
		case node.Done:
			freed++
			free++
		case node.Absent, node.Held, node.Broken, node.Foreign, node.WrongType:
			free++
		}
	}
	switch {
	case free < b.cfg.Quorum:
		reasons := append(ctxReasons(ctx), backend.ErrNoQuorum)
		return &backend.QuorumError{
			Op: "release", Name: h.Name, Need: b.cfg.Quorum, Votes: votes, Reasons: reasons, MayRemain: true,
		}
	case freed+len(answers)-free < b.cfg.Quorum:
		// Also with the nodes that said nothing, no quorum had it any more.
		return b.surveyError("release", h.Name, votes, backend.ErrLost)
	}
	return nil
}

// Resume implements backend.Backend.
func (b *Backend) Resume(ctx context.Context, handle string, r backend.Request) (backend.Lease, error) {
	h, err := backend.DecodeHandle(handle)
	if err != nil {
		return nil, err
	}
	r.Name, r.Mode = h.Name, backend.Exclusive
	if h.Shared {
		r.Mode = backend.Shared
	}
	if err := b.checkRequest(r); err != nil {
		return nil, err
	}
	w := &waiter{backend: b, op: "resume", req: r, limit: ctx, begun: b.clock.Now()}
	if err := b.meet(ctx, r.TTL); err != nil {
		return nil, w.stopped(ctx, nil)
	}
	b.saw(h.Token)
	a := b.takeOver(ctx, h, r)
	// A node that has handed the lease over would not do so again; but as long as
	// none was even asked, because all are slow to meet us, another try does no harm.
	for tries := 0; a.unasked() && ctx.Err() == nil && b.clock.Now().Sub(w.begun) < b.cfg.ConnectWait; tries++ {
		timer := time.NewTimer(core.Backoff(tries, 0, false, 0, random()))
		select {
		case <-timer.C:
			a = b.takeOver(ctx, h, r)
		case <-ctx.Done():
			timer.Stop()
		}
	}
	if a.giveUp() {
		w.report(a)
		return a, nil
	}
	v := a.verdict()
	reasons := ctxReasons(ctx)
	switch refused := countOutcome(v.votes, backend.OutcomeRefused); {
	case v.fatal != nil && !errors.Is(v.fatal, backend.ErrForeignKey):
		reasons = append(reasons, v.fatal)
	case refused > len(v.votes)-b.cfg.Quorum:
		reasons = append(reasons, backend.ErrLost)
	case len(reasons) == 0:
		reasons = append(reasons, v.reason())
	}
	return nil, &backend.QuorumError{
		Op: "resume", Name: r.Name, Need: b.cfg.Quorum, Votes: v.votes, Reasons: reasons, MayRemain: v.mayRemain,
	}
}

// takeOver asks all nodes to hand the lease of h to a fresh attempt, and returns
// that once it is decided, or ctx has ended.
func (b *Backend) takeOver(ctx context.Context, h backend.Handle, r backend.Request) *attempt {
	id := newID()
	a := b.start(r, id, node.Op{
		Kind: node.Replace, Name: r.Name, ID: h.ID, NewID: id, TTL: r.TTL.Milliseconds(),
		Proposal: b.propose(), Owner: r.Owner,
	})
	select {
	case <-a.settled:
	case <-ctx.Done():
	}
	return a
}

// unasked reports whether the round is lost without that anything was sent, and for
// no reason that another try would meet again.
func (a *attempt) unasked() bool {
	if v := a.verdict(); v.answered || v.fatal != nil {
		return false
	}
	a.mu.Lock()
	defer a.unlock()
	if a.phase != undoing {
		return false
	}
	return !slices.ContainsFunc(a.lanes, func(l lane) bool { return l.touched })
}

func countOutcome(votes []backend.Vote, o backend.Outcome) int {
	count := 0
	for _, v := range votes {
		if v.Outcome == o {
			count++
		}
	}
	return count
}
