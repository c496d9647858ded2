package quorum

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// view is what one node shows of a name.
type view struct {
	node.Answer
	// time is the node's clock then, in microseconds, or a little more.
	time int64
}

// latest is the latest that the node's clock can show at now.
func (p *peer) latest(now core.Instant) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock.Latest(now)
}

// status says who has a name, from what every node shows of it, and how many
// nodes showed anything.
func (b *Backend) status(name string, votes []backend.Vote, views []view) (s backend.Status, answered int) {
	s = backend.Status{Name: name, Votes: votes}
	holders := make(map[string][]view)
	for _, v := range views {
		switch v.Code {
		case node.Absent:
			answered++
		case node.Held, node.Broken, node.Foreign, node.WrongType:
			answered++
			holders[v.Holder] = append(holders[v.Holder], v)
			s.NoTTL = s.NoTTL || v.Remaining < 0
		}
	}
	var most []view
	for _, at := range holders {
		if c := cmp.Compare(len(at), len(most)); c > 0 || c == 0 && at[0].Holder > most[0].Holder {
			most = at
		}
	}
	if len(most) > 0 {
		s.Held = len(most) >= b.cfg.Quorum
		s.Partial = !s.Held
		b.describe(&s, most, len(views))
	}
	return s, answered
}

// describe says who it is that the nodes of views, some of n, show.
func (b *Backend) describe(s *backend.Status, views []view, n int) {
	first := views[0]
	s.Owner = first.Owner
	s.Foreign = first.Code == node.Foreign || first.Code == node.WrongType
	ends := make([]time.Duration, 0, len(views))
	tokens := make(map[uint64]int)
	var number uint64
	var now int64
	for _, v := range views {
		s.Broken = s.Broken || v.Code == node.Broken
		ends = append(ends, remaining(v.Answer))
		number, now = max(number, v.Token), max(now, v.time)
		if tokens[v.Token]++; !s.Foreign && tokens[v.Token] >= min(b.cfg.Quorum, len(views)) {
			s.Token = fence.Token(v.Token)
		}
	}
	if !s.Foreign {
		s.Since = takenAt(number, now)
	}
	// The name is free for a rival as soon as fewer than enough nodes to stop a
	// quorum still have it.
	slices.SortFunc(ends, func(x, y time.Duration) int {
		return cmp.Compare(uint64(x), uint64(y)) // -1, for ever, is the longest
	})
	blockers := n - b.cfg.Quorum + 1
	if len(ends) >= blockers {
		s.Remaining = ends[len(ends)-blockers]
	}
}

const (
	// firstToken is 2020, in microseconds since 1970: before this library, so a
	// number below it was counted and is no time.
	firstToken = 1_577_836_800_000_000
	// tokenSlack is how far a number may be ahead of the node that shows it and
	// still be taken for a time.
	tokenSlack = time.Minute
)

// takenAt is when a lease with the stored number was taken, if the number is a
// time as seen from now, in microseconds, and zero otherwise.
func takenAt(number uint64, now int64) time.Time {
	if number < firstToken || int64(number) > now+tokenSlack.Microseconds() {
		return time.Time{}
	}
	return time.UnixMicro(int64(number))
}

// mostTold is how many of a line Inspect tells of.
const mostTold = 100

// lineOf tells who waits for a name, as far as a quorum of nodes knows of them. Each node
// is asked directly, and one that does not tell has none.
func (b *Backend) lineOf(ctx context.Context, name string) (line []backend.Waiter, waiting int) {
	ctx, ended := b.asking(ctx)
	defer ended()
	replies := make([]node.LineReply, len(b.peers))
	var wg sync.WaitGroup
	for i, p := range b.peers {
		wg.Go(func() {
			replies[i], _ = within(ctx, func(ctx context.Context) (node.LineReply, error) {
				return p.node.Line(ctx, node.Line{Keys: b.keys, Name: name, Most: mostTold})
			})
		})
	}
	wg.Wait()
	lengths := make([]int, len(replies))
	for i, r := range replies {
		lengths[i] = r.Waiting
	}
	slices.Sort(lengths)
	// So many stand at a quorum of nodes, if they are the same.
	waiting = lengths[len(lengths)-b.cfg.Quorum]
	for _, e := range b.together(replies) {
		line = append(line, backend.Waiter{Owner: e.Owner, Mode: backend.Mode(e.Mode), Since: takenAt(e.Ticket, b.wall().UnixMicro())})
	}
	return line, max(waiting, len(line))
}

// together returns who stands at a quorum of nodes, in order. The ticket is the same at all
// of them once it is agreed, and the largest is agreed on.
func (b *Backend) together(replies []node.LineReply) []node.Entry {
	places, entries := make(map[string]int), make(map[string]node.Entry)
	for _, r := range replies {
		for _, e := range r.First {
			places[e.Waiter]++
			e.Ticket = max(e.Ticket, entries[e.Waiter].Ticket)
			entries[e.Waiter] = e
		}
	}
	var line []node.Entry
	for waiter, e := range entries {
		if places[waiter] >= b.cfg.Quorum {
			line = append(line, e)
		}
	}
	slices.SortFunc(line, func(x, y node.Entry) int {
		return cmp.Or(cmp.Compare(x.Ticket, y.Ticket), cmp.Compare(x.Waiter, y.Waiter))
	})
	return line
}
