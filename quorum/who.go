package quorum

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
)

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
