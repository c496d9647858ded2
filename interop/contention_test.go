package interop

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/redlock/testkit/naive"
)

const (
	// contendFor is how long kinds contend at least, and turns how many locks each
	// must have had by the end.
	contendFor = 2 * time.Second
	turns      = 5
	// holding is the work under each lock.
	holding = 2 * time.Millisecond
)

// turn is one lock, from when it was had until its holder could not act any
// more: it called release, or the lock's time was over.
type turn struct {
	who      string
	from, to instant
}

// overlaps lists the turns that began before an earlier one was over.
func overlaps(list []turn) []string {
	list = slices.SortedFunc(slices.Values(list), func(a, b turn) int { return cmp.Compare(a.from, b.from) })
	var found []string
	for i, last := 1, 0; i < len(list); i++ {
		if list[i].from < list[last].to {
			found = append(found, fmt.Sprintf("%s began %v before %s was over",
				list[i].who, time.Duration(list[last].to-list[i].from), list[last].who))
		}
		if list[i].to > list[last].to {
			last = i
		}
	}
	return found
}

// contend lets all clients take the same name in turns, until each has had its
// share, and returns all turns.
func contend(t *testing.T, name string, clients map[string]client) []turn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), contendFor+patience)
	defer cancel()
	c := contention{name: name, least: now().add(contendFor), short: len(clients), end: cancel}
	var wg sync.WaitGroup
	for who, client := range clients {
		wg.Go(func() {
			for had := 0; ctx.Err() == nil; {
				turn, err := takeTurn(ctx, client, name)
				if ctx.Err() == nil && err != nil {
					t.Errorf("%s: %v", who, err)
				}
				if turn.from > 0 {
					had++
					turn.who = fmt.Sprintf("%s's lock number %d", who, had)
					c.add(turn, had == turns)
				}
			}
		})
	}
	wg.Wait()
	if c.short > 0 {
		t.Errorf("%d of %d clients got fewer than %d locks: %d in all", c.short, len(clients), turns, len(c.list))
	}
	return c.list
}

// takeTurn takes the name once. Without a lock, the turn begins at 0.
func takeTurn(ctx context.Context, c client, name string) (turn, error) {
	h, err := c.wait(ctx, name, longTTL)
	if err != nil {
		return turn{}, err
	}
	<-time.After(holding)
	until := h.until()
	released, err := h.release()
	return turn{from: h.from(), to: min(until, released)}, err
}

type contention struct {
	name  string
	least instant // when it may end at the earliest
	end   func()

	mu    sync.Mutex
	list  []turn
	short int // clients that have not had their share
}

func (c *contention) add(turn turn, share bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, turn)
	if share {
		c.short--
	}
	if c.short == 0 && now() > c.least {
		c.end()
	}
}

func TestAllKindsContendWithoutOverlap(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		clients := make(map[string]client)
		for _, k := range append([]kind{ours}, rivals...) {
			for i := range 2 {
				clients[fmt.Sprintf("%s %d", k.name, i+1)] = ns.open(t, k)
			}
		}
		list := contend(t, "contended", clients)
		for _, found := range overlaps(list) {
			t.Error(found)
		}
		t.Logf("%d turns", len(list))
	})
}

// TestALockThatLocksNothingIsSeen: a check that passes with it is worth nothing.
func TestALockThatLocksNothingIsSeen(t *testing.T) {
	ns := start(t, 3)
	clients := map[string]client{
		"redlock": ns.open(t, ours), "redsync": ns.open(t, redsync), "node-redlock": ns.open(t, nodejs), "nothing": nothing{},
	}
	if list := contend(t, "contended", clients); len(overlaps(list)) == 0 {
		t.Errorf("no overlap in %d turns", len(list))
	}
}

// nothing is a client that is never refused.
type nothing struct{ naive.None }

func (n nothing) try(name string, ttl time.Duration) (held, error) {
	return n.wait(context.Background(), name, ttl)
}

func (n nothing) wait(ctx context.Context, name string, ttl time.Duration) (held, error) {
	unlock, err := n.Lock(ctx, name, ttl)
	return nothingHeld{now(), unlock}, err
}

func (nothing) close() {}

type nothingHeld struct {
	had    instant
	unlock func(context.Context) error
}

func (h nothingHeld) from() instant  { return h.had }
func (h nothingHeld) until() instant { return h.had.add(longTTL) }
func (h nothingHeld) extend() error  { return nil }

func (h nothingHeld) release() (instant, error) {
	at := now()
	return at, h.unlock(context.Background())
}

func TestOverlapsAreFoundWhateverLiesBetween(t *testing.T) {
	apart := []turn{{"a", 1, 3}, {"b", 3, 5}, {"c", 9, 10}}
	if found := overlaps(apart); len(found) > 0 {
		t.Errorf("turns that only touch: %q", found)
	}
	around := []turn{{"c", 6, 7}, {"a", 1, 10}, {"b", 2, 3}} // c meets a, not its neighbour b
	if found := overlaps(around); len(found) != 2 {
		t.Errorf("two turns within a third: %q", found)
	}
}
