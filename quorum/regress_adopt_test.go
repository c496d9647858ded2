package quorum

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// watch has a client try to take x for longer than any quarantine lasts, which makes
// it watch over the nodes in one. It returns what the client was told last.
func (c *cluster) watch(b *Backend) (err error) {
	for range 120 {
		var l backend.Lease
		if l, err = b.Acquire(c.t.Context(), backend.Request{Name: "x", TTL: time.Second, MaxAttempts: 1}); err == nil {
			l.Release(c.t.Context())
		}
		time.Sleep(time.Second)
	}
	return err
}

// standings are those of the nodes, as b sees them.
func (c *cluster) standings(b *Backend) string {
	var all []string
	for _, s := range b.Nodes(c.t.Context()) {
		all = append(all, s.Standing)
	}
	return strings.Join(all, " ")
}

// Two of three nodes lose their data, and only a client of another configuration than
// theirs watches over them: one that a change has passed by, or that was never right.
// It must not take them for its own, or who is right would have no quorum any more.
func TestABlankNodeIsNotTakenByTheWrongClient(t *testing.T) {
	right, other := Config{MaxTTL: 2 * time.Second}, Config{MaxTTL: 30 * time.Second}
	passedBy := func(t *testing.T, c *cluster) *Backend {
		wrong := c.open("abc", other)
		wrong.Init(t.Context(), backend.InitOptions{})
		c.hold(wrong, "held", other.MaxTTL)
		c.reconfigure(c.open("abc", right), "")
		return wrong
	}
	neverRight := func(t *testing.T, c *cluster) *Backend {
		c.open("abc", right).Init(t.Context(), backend.InitOptions{})
		return c.open("abc", other)
	}
	for name, test := range map[string]struct {
		begin func(t *testing.T, c *cluster) (wrong *Backend)
		gone  func(a *memnode.Node) // the node that has its data, once the client has met it
		back  func(a *memnode.Node)
	}{
		"passed by":       {begin: passedBy},
		"never right":     {begin: neverRight},
		"cannot ask":      {passedBy, func(a *memnode.Node) { a.Down(true) }, func(a *memnode.Node) { a.Down(false) }},
		"nobody tells it": {passedBy, (*memnode.Node).Wipe, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				wrong := test.begin(t, c)
				c.at["b"].Wipe()
				c.at["c"].Wipe()
				if s := c.standings(wrong); !strings.HasPrefix(s, "mismatch ") {
					t.Fatalf("before: %s", s)
				}
				if test.gone != nil {
					test.gone(c.at["a"])
				}
				if err := c.watch(wrong); !errors.Is(err, backend.ErrMismatch) {
					t.Errorf("it is told %v", err)
				}
				if test.back != nil {
					test.back(c.at["a"])
				}
				after := c.open("abc", right)
				began := time.Now()
				c.take(after, "x").Release(t.Context())
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %v, as if nobody had watched", took)
				}
				c.settle(after)
				if s := c.standings(after); s != "ok ok ok" {
					t.Errorf("nodes: %s", s)
				}
			})
		})
	}
}

// Nor is it taken by an operator who has the wrong configuration, and insists.
func TestABlankNodeIsNotForcedIntoTheWrongConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		right := c.open("abc", Config{})
		right.Init(t.Context(), backend.InitOptions{})
		c.at["b"].Wipe()
		for _, s := range c.open("abc", Config{Quorum: 3}).Init(t.Context(), backend.InitOptions{Force: true}) {
			want := backend.ErrMismatch
			if s.Node == "b" {
				want = backend.ErrQuarantined
			}
			if !errors.Is(s.Err, want) {
				t.Errorf("%+v, want %v", s, want)
			}
		}
		states := right.Init(t.Context(), backend.InitOptions{Force: true})
		if slices.ContainsFunc(states, func(s backend.NodeState) bool { return s.Err != nil }) {
			t.Errorf("%+v", states)
		}
	})
}

// A node that a change has passed by has no say in that: it is nobody's any more.
func TestAnOutdatedNodeKeepsNoBlankNodeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		after := stale(t, c)
		c.take(after, "x").Release(t.Context())
		c.at["a"].Wipe()
		c.settle(after)
		if s := c.standings(after); s != "ok ok outdated" {
			t.Errorf("nodes: %s", s)
		}
	})
}

// While a quorum votes under the client's configuration, one node that shows another,
// even a newer one, keeps nobody from taking back in a node that lost its data.
func TestAQuorumTakesABlankNodeBackIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		b := c.open("abcde", Config{})
		b.Init(t.Context(), backend.InitOptions{})
		stray := c.open("e", Config{})
		c.at["e"].Wipe()
		stray.Init(t.Context(), backend.InitOptions{})
		c.reconfigure(c.open("e", Config{MaxTTL: 10 * time.Second}), "")
		c.at["d"].Wipe()
		if err := c.watch(b); !errors.Is(err, backend.ErrMismatch) {
			t.Errorf("it is told %v", err)
		}
		if s := c.standings(b); s != "ok ok ok ok mismatch" {
			t.Errorf("nodes: %s", s)
		}
		c.at["e"].Wipe()
		c.watch(b)
		if s := c.standings(b); s != "ok ok ok ok ok" {
			t.Errorf("nodes: %s", s)
		}
	})
}
