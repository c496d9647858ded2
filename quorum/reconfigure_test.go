package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// cluster is nodes that configurations are tried on.
type cluster struct {
	t  *testing.T
	at map[string]*memnode.Node
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, at: make(map[string]*memnode.Node)}
	for _, name := range strings.Split("abcdefg", "") {
		c.at[name] = memnode.New(name)
	}
	return c
}

// nodes connects to the nodes that are named by one letter each.
func (c *cluster) nodes(names string) []Node {
	var nodes []Node
	for _, name := range strings.Split(names, "") {
		nodes = append(nodes, c.at[name].Client())
	}
	return nodes
}

// open returns a client of the nodes named.
func (c *cluster) open(names string, cfg Config) *Backend {
	c.t.Helper()
	return c.over(c.nodes(names), cfg)
}

func (c *cluster) over(nodes []Node, cfg Config) *Backend {
	c.t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	b, err := New(nodes, &cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { b.Close(context.Background()) })
	return b
}

// slow returns a client whose wall clock is behind: its tokens grow only because
// the nodes know where to go on.
func (c *cluster) slow(names string, cfg Config) *Backend {
	c.t.Helper()
	b := c.open(names, cfg)
	b.wall = func() time.Time { return time.Now().Add(-time.Hour) }
	return b
}

// reconfigure carries out a change, and wants it to succeed.
func (c *cluster) reconfigure(b *Backend, old string) {
	c.t.Helper()
	var nodes []Node
	if old != "" {
		nodes = c.nodes(old)
	}
	if states, err := b.Reconfigure(c.t.Context(), nodes); err != nil {
		c.t.Fatalf("%v\n%+v", err, states)
	}
}

// holder is a lease that is renewed as long as that goes.
type holder struct {
	backend.Lease
	lost chan error
	end  time.Time // when it was lost
}

func (c *cluster) hold(b *Backend, name string, ttl time.Duration) *holder {
	c.t.Helper()
	h := &holder{lost: make(chan error, 1)}
	l, err := b.Acquire(c.t.Context(), backend.Request{Name: name, TTL: ttl, Lost: func(err error) {
		h.end = time.Now()
		h.lost <- err
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	h.Lease = l
	return h
}

// take waits for the name, for as long as a quarantine may last.
func (c *cluster) take(b *Backend, name string) backend.Lease {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Minute)
	defer cancel()
	for {
		l, err := b.Acquire(ctx, backend.Request{Name: name, TTL: time.Second})
		if err == nil {
			return l
		}
		if ctx.Err() != nil {
			c.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // a mismatch is told at once
	}
}

// changes are those that an operator may make.
var changes = []struct {
	name     string
	old, new string // nodes, in letters
	dead     string // old ones
	from, to Config
	differs  string // fields
}{
	{"longer max TTL", "abc", "abc", "", Config{MaxTTL: 10 * time.Second}, Config{MaxTTL: 20 * time.Second},
		"epoch: 1 here, 2 on the node, max TTL in ms: 10000 here, 20000 on the node"},
	{"shorter max TTL", "abc", "abc", "", Config{MaxTTL: 20 * time.Second}, Config{MaxTTL: 2 * time.Second},
		"epoch: 1 here, 2 on the node, max TTL in ms: 20000 here, 2000 on the node"},
	{"quorum", "abcde", "abcde", "", Config{}, Config{Quorum: 4}, "epoch: 1 here, 2 on the node, quorum: 3 here, 4 on the node"},
	{"narrower quorum", "abcde", "abcde", "", Config{Quorum: 4}, Config{}, "epoch: 1 here, 2 on the node, quorum: 4 here, 3 on the node"},
	{"plain keys", "abc", "abc", "", Config{}, Config{PlainKeys: true}, "epoch: 1 here, 2 on the node, plain keys: false here, true on the node"},
	{"three to five", "abc", "abcde", "", Config{}, Config{}, "number of nodes: 3 here, 5 on the node"},
	{"one to three", "a", "abc", "", Config{}, Config{}, "number of nodes: 1 here, 3 on the node"},
	{"five to three", "abcde", "abc", "", Config{}, Config{}, "number of nodes: 5 here, 3 on the node"},
	{"one replaced", "abc", "abd", "c", Config{}, Config{}, "members: "},
	{"all replaced", "abc", "efg", "", Config{}, Config{}, "members: "},
}

// eachChange runs a test for every change: of the nodes of the old configuration
// that are alive, and with its clients.
func eachChange(t *testing.T, test func(t *testing.T, c *cluster, i int, before *Backend)) {
	for i, ch := range changes {
		t.Run(ch.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				before := c.open(ch.old, ch.from)
				before.Init(t.Context(), backend.InitOptions{})
				if ch.dead != "" {
					c.at[ch.dead].Down(true)
				}
				test(t, c, i, before)
			})
		})
	}
}

// A holder keeps its lease until its validity ends, and is told; nobody of the new
// configuration has the name before; tokens grow; and the old clients are told
// what has changed.
func TestReconfigureUnderALiveHolder(t *testing.T) {
	eachChange(t, func(t *testing.T, c *cluster, i int, before *Backend) {
		ch := changes[i]
		h := c.hold(before, "x", 2*time.Second)
		time.Sleep(5 * time.Second)
		until := h.Deadline()
		after := c.slow(ch.new, ch.to)
		c.reconfigure(after, ch.old)
		began := time.Now()
		l := c.take(after, "x")
		taken := time.Now()
		if err := <-h.lost; !errors.Is(err, backend.ErrLost) {
			t.Errorf("the holder was told %v", err)
		}
		if h.end.Before(until) || h.end.After(until.Add(2*time.Second)) || taken.Before(h.end) {
			t.Errorf("held until %v, deadline %v, taken %v", h.end, until, taken)
		}
		longest := max(before.cfg.MaxTTL, after.cfg.MaxTTL)
		if waited := taken.Sub(began); waited < longest || waited > 2*longest {
			t.Errorf("taken after %v", waited)
		}
		if l.Token() <= h.Token() || l.TokenByClock() {
			t.Errorf("token %d after %d, by clock %v", l.Token(), h.Token(), l.TokenByClock())
		}
		_, err := before.Acquire(t.Context(), backend.Request{Name: "y", TTL: time.Second})
		if !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), ch.differs) {
			t.Errorf("an old client gets %v, want %q", err, ch.differs)
		}
		for _, s := range after.Nodes(t.Context()) {
			if s.Standing != "ok" {
				t.Errorf("%+v", s)
			}
		}
	})
}

// failing are nodes of which, all together, the first so many configures go
// through. lost lets one more through, and its answer not.
type failing struct {
	mu   sync.Mutex
	left int
	lost bool
}

type failingNode struct {
	Node
	*failing
}

func (f failingNode) Configure(ctx context.Context, c node.Configure) (node.ConfigureReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	if f.left >= 0 || f.left == -1 && f.lost {
		r, err := f.Node.Configure(ctx, c)
		if f.left >= 0 {
			return r, err
		}
	}
	return node.ConfigureReply{}, &node.CallError{Sent: true, Err: errors.New("interrupted")}
}

func (f *failing) wrap(nodes []Node) []Node {
	for i, n := range nodes {
		nodes[i] = failingNode{n, f}
	}
	return nodes
}

// A run that was interrupted after any step leaves no two holders, however long
// that lasts and whoever comes, and is continued by another.
func TestReconfigureInterrupted(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for left := range 10 {
			t.Run(fmt.Sprintf("after %d, answer lost %v", left, lost), func(t *testing.T) {
				eachChange(t, func(t *testing.T, c *cluster, i int, before *Backend) {
					interrupt(t, c, i, before, &failing{left: left, lost: lost})
				})
			})
		}
	}
}

func interrupt(t *testing.T, c *cluster, i int, before *Backend, f *failing) {
	ch, left := changes[i], f.left
	h := c.hold(before, "x", 2*time.Second)
	first := c.over(f.wrap(c.nodes(ch.new)), ch.to)
	after := c.slow(ch.new, ch.to)
	// Blank nodes vote when they have been watched for long, unless a node tells the
	// clients that it has another configuration.
	warned := strings.ContainsAny(ch.old, ch.new)
	if warned {
		c.settle(after)
	}
	_, err := first.Reconfigure(t.Context(), f.wrap(c.nodes(ch.old)))
	last := c.oneQuorum(before, c.slow(ch.new, ch.to), h)
	if warned || left >= len(ch.new) {
		c.settle(after)
		last = c.oneQuorum(before, after, h)
	}
	if err != nil {
		_, err = after.Reconfigure(t.Context(), c.nodes(ch.old))
	}
	if err != nil && !errors.Is(err, backend.ErrBadOption) { // nothing is left to change
		t.Fatalf("run again: %v", err)
	}
	if l := c.take(after, "x"); l.Token() <= last || l.TokenByClock() {
		t.Errorf("token %d after %d, by clock %v", l.Token(), last, l.TokenByClock())
	}
}

// oneQuorum checks that at most the clients of one configuration can take x, and
// none while h has it. It returns the last token.
func (c *cluster) oneQuorum(before, after *Backend, h *holder) fence.Token {
	c.t.Helper()
	last := h.Token()
	request := backend.Request{Name: "x", TTL: 2 * time.Second, MaxAttempts: 1}
	l, err := after.Acquire(c.t.Context(), request)
	if err == nil {
		if len(h.lost) == 0 {
			c.t.Error("two holders")
		}
		if l.Token() <= last {
			c.t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		l.Release(c.t.Context())
	}
	if again, err := before.Acquire(c.t.Context(), request); err == nil {
		if l != nil {
			c.t.Error("both configurations have a quorum")
		}
		last = again.Token()
		again.Release(c.t.Context())
	}
	return last
}

// settle lets a client try for longer than any quarantine lasts.
func (c *cluster) settle(b *Backend) {
	for range 12 {
		if l, err := b.Acquire(c.t.Context(), backend.Request{Name: "settle", TTL: time.Second, MaxAttempts: 1}); err == nil {
			l.Release(c.t.Context())
		}
		time.Sleep(10 * time.Second)
	}
}
