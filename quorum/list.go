package quorum

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

const (
	// scanCount is how many keys a node looks at for a page: about a
	// millisecond, in which it does nothing else.
	scanCount = 1000
	// lookBatch is how many names a node is asked about in one call.
	lookBatch = 64
)

// listing is a List under way. A node that has failed once is not asked again:
// each time would cost as much as the first.
type listing struct {
	backend *Backend
	failed  []error // by node

	mu    sync.Mutex
	names map[string]struct{}
}

// List implements backend.Backend. It asks the nodes directly, without a
// greeting and whatever their guard: it is to work where locks do not.
//
// First every node says which names it has. Pages are read one after the other,
// so two nodes' may differ only because a lease was taken or given back in
// between. Therefore what is listed is asked afterwards, at all nodes at once.
func (b *Backend) List(ctx context.Context, pattern string) ([]backend.Status, error) {
	if pattern == "" {
		pattern = "*"
	}
	if _, err := node.ParsePattern(pattern); err != nil {
		return nil, badOption("pattern %q: %v", pattern, err)
	}
	ctx, ended := b.asking(ctx)
	defer ended()

	l := &listing{backend: b, failed: make([]error, len(b.peers)), names: make(map[string]struct{})}
	l.each(func(i int) error { return l.scan(ctx, i, pattern) })
	var found []backend.Status
	for names := range slices.Chunk(slices.Sorted(maps.Keys(l.names)), lookBatch) {
		found = l.look(ctx, names, found)
	}
	return found, l.err(ctx, pattern)
}

// asking counts as an operation what asks nodes directly. ctx ends when the
// backend is closed.
func (b *Backend) asking(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.closing, func() { cancel(context.Cause(b.closing)) })
	b.begun()
	return ctx, func() {
		b.ended()
		stop()
		cancel(nil)
	}
}

// each does something with every node that has not failed, side by side.
func (l *listing) each(do func(i int) error) {
	var wg sync.WaitGroup
	for i := range l.failed {
		if l.failed[i] == nil {
			wg.Go(func() { l.failed[i] = do(i) })
		}
	}
	wg.Wait()
}

// scan adds the names that node i has.
func (l *listing) scan(ctx context.Context, i int, pattern string) error {
	b := l.backend
	page := node.Scan{Keys: b.keys, Pattern: pattern, Count: scanCount}
	for {
		reply, err := within(ctx, func(ctx context.Context) (node.ScanReply, error) {
			return b.peers[i].node.Scan(ctx, page)
		})
		if err != nil {
			return b.peers[i].asRefusal(err)
		}
		l.mu.Lock()
		for _, name := range reply.Names {
			if b.CheckName(name) == nil {
				l.names[name] = struct{}{}
			}
		}
		l.mu.Unlock()
		if page.Cursor = reply.Next; page.Cursor == "" {
			return nil
		}
	}
}

// within bounds one question as long as a greeting: like that it may have to
// begin with a connection.
func within[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	return ask(ctx)
}

// look asks all nodes who has the names, and appends what is to be listed.
func (l *listing) look(ctx context.Context, names []string, found []backend.Status) []backend.Status {
	b := l.backend
	call := &node.Call{Keys: b.keys, MaxTTL: b.conf.MaxTTL}
	for _, name := range names {
		call.Ops = append(call.Ops, node.Op{Kind: node.Inspect, Name: name})
	}
	sent := b.clock.Now()
	replies, ends := make([]*node.Reply, len(b.peers)), make([]core.Instant, len(b.peers))
	l.each(func(i int) (err error) {
		replies[i], err = within(ctx, func(ctx context.Context) (*node.Reply, error) {
			return b.peers[i].node.Call(ctx, call)
		})
		ends[i] = b.clock.Now()
		if err != nil {
			return b.peers[i].asRefusal(err)
		}
		return firstFailure(replies[i].Answers)
	})
	for k, name := range names {
		votes, views := make([]backend.Vote, len(b.peers)), make([]view, len(b.peers))
		for i, r := range replies {
			if r == nil {
				votes[i] = l.vote(i)
				continue
			}
			views[i] = view{r.Answers[k], r.Time}
			votes[i] = vote(b.peers[i].node.Name(), r.Answers[k], ends[i].Sub(sent))
		}
		if s, _ := b.status(name, votes, views); (s.Held || s.Partial) && !(b.keys.Plain && foreignOnly(views)) {
			found = append(found, s)
		}
	}
	return found
}

// firstFailure is why a node could not look at a name, such as a right that its
// user lacks.
func firstFailure(answers []node.Answer) error {
	for _, a := range answers {
		if a.Code == node.Failed {
			return vote("", a, 0).Err
		}
	}
	return nil
}

// foreignOnly tells that no node shows a lease of ours. With plain keys such a
// name is a key of the application's.
func foreignOnly(views []view) bool {
	return !slices.ContainsFunc(views, func(v view) bool { return v.Code == node.Held || v.Code == node.Broken })
}

// vote is what became of node i as a whole.
func (l *listing) vote(i int) backend.Vote {
	v := backend.Vote{Node: l.backend.peers[i].node.Name(), Outcome: backend.OutcomeGranted}
	switch err := l.failed[i]; {
	case errors.Is(err, context.DeadlineExceeded):
		v.Outcome = backend.OutcomeSilent
	case err != nil:
		v.Outcome, v.Err = backend.OutcomeFailed, err
	}
	return v
}

// err says why the list may lack what others hold: too few nodes showed all
// that they have.
func (l *listing) err(ctx context.Context, pattern string) error {
	votes := make([]backend.Vote, len(l.failed))
	reasons := append(ctxReasons(ctx), backend.ErrNoQuorum)
	for i := range votes {
		votes[i] = l.vote(i)
		for _, reason := range []error{backend.ErrUnfit, backend.ErrNotPermitted} {
			if errors.Is(votes[i].Err, reason) && !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
		}
	}
	if countOutcome(votes, backend.OutcomeGranted) >= l.backend.cfg.Quorum {
		return nil
	}
	return l.backend.surveyError("list", pattern, votes, reasons...)
}
