package quorum

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
)

// stale leaves node c with the configuration of before a change, and returns a
// client of after, which has yet to greet the nodes.
func stale(t *testing.T, c *cluster) (after *Backend) {
	t.Helper()
	from, to := Config{MaxTTL: 10 * time.Second}, Config{MaxTTL: 20 * time.Second}
	first := c.open("abc", from)
	first.Init(t.Context(), backend.InitOptions{})
	f := &failing{left: 5} // the sixth is the last to be configured
	change := c.over(f.wrap(c.nodes("abc")), to)
	if _, err := change.Reconfigure(t.Context(), nil); err == nil {
		t.Fatal("not interrupted")
	}
	left := slices.DeleteFunc(strings.Split("abc", ""), func(name string) bool {
		h, err := c.at[name].Hello(t.Context(), node.Hello{Keys: change.keys, Conf: change.conf, Intent: node.Look})
		return err != nil || h.Was == ""
	})
	if len(left) != 1 {
		t.Fatalf("fenced: %v", left)
	}
	// Its data is that of before the fence once more, and nobody saw it restart.
	last := c.at[left[0]]
	last.Delete(change.keys.Quarantine())
	old := first.conf
	h, err := last.Hello(t.Context(), node.Hello{Keys: change.keys, Conf: change.conf, Intent: node.Look})
	if err != nil {
		t.Fatal(err)
	}
	last.Set(change.keys.Guard(), old.Guard(h.Life), 0)
	c.at["c"], c.at[left[0]] = last, c.at["c"]
	return c.open("abc", to)
}

// An outdated node is in nobody's way, also if it was the first to be greeted.
func TestOutdatedNodeCountsAsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		after := stale(t, c)
		c.take(after, "warm").Release(t.Context())
		for _, first := range []bool{false, true} {
			after := c.open("abc", Config{MaxTTL: 20 * time.Second})
			if first {
				c.at["a"].Delay(5 * time.Millisecond)
				c.at["b"].Delay(5 * time.Millisecond)
			}
			name := fmt.Sprint(first)
			l, err := after.Acquire(t.Context(), backend.Request{Name: name, TTL: 10 * time.Second, MaxAttempts: 1})
			if err != nil {
				t.Fatalf("greeted first %v: %v", first, err)
			}
			l.Release(t.Context())
			c.at["a"].Down(true)
			_, err = after.Acquire(t.Context(), backend.Request{Name: name, TTL: 10 * time.Second, MaxAttempts: 1})
			c.at["a"].Down(false)
			var q *backend.QuorumError
			if !errors.As(err, &q) || errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), "outdated: it has the configuration of epoch 1, others have that of epoch 2") {
				t.Errorf("greeted first %v: %v", first, err)
			}
		}
		var outdated []string
		for _, s := range after.Nodes(t.Context()) {
			if s.Standing == standingOutdated && errors.Is(s.Err, backend.ErrNoQuorum) {
				outdated = append(outdated, s.Node)
			}
		}
		if len(outdated) != 1 {
			t.Errorf("outdated: %v", outdated)
		}
		// A change that finds a quorum takes in the one that is left.
		c.reconfigure(after, "")
		voting := 0
		for _, s := range after.Nodes(t.Context()) {
			voting += count(s.Standing == "ok")
		}
		c.settle(after)
		if voting != 2 || slices.ContainsFunc(after.Nodes(t.Context()), func(s backend.NodeState) bool { return s.Err != nil }) {
			t.Errorf("%d went on voting; then %+v", voting, after.Nodes(t.Context()))
		}
	})
}

// Clients of the protocol before and of this one exclude each other, and a node
// that loses its memory is taken back in by either of them.
func TestProtocolsSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		open := func(protocol int) *Backend {
			b := c.open("abc", Config{})
			b.conf.Protocol = protocol
			return b
		}
		before, after := open(4), open(5)
		before.Init(t.Context(), backend.InitOptions{})
		try := func(b *Backend) (backend.Lease, error) {
			return b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, NoWait: true})
		}
		for _, b := range []*Backend{before, after} {
			other := before
			if b == before {
				other = after
			}
			l, err := try(b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := try(other); !errors.Is(err, backend.ErrHeld) {
				t.Errorf("got %v, want ErrHeld", err)
			}
			l.Release(t.Context())
		}
		c.at["c"].Wipe()
		c.settle(after)
		for _, s := range before.Nodes(t.Context()) {
			if s.Standing != "ok" {
				t.Errorf("the older client is shut out: %+v", s)
			}
		}
		// When all clients are new, the nodes follow.
		l := c.hold(after, "x", 10*time.Second)
		c.reconfigure(open(5), "")
		c.settle(after)
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("the holder of the same quorums lost its lease: %v", err)
		}
		if _, err := try(before); !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), "protocol: 4 here, 5 on the node") {
			t.Errorf("the older client gets %v", err)
		}
		c.take(after, "x").Release(t.Context())
	})
}

// What cannot be changed, and what must not, is said, and no node is touched: one that
// is fenced would not get its vote back before the change can be made.
func TestReconfigureRefused(t *testing.T) {
	to := Config{MaxTTL: 20 * time.Second}
	for _, test := range []struct {
		rule    string
		prepare func(t *testing.T, c *cluster)
		new     string
		old     string
		want    error
		says    string
	}{
		{"nothing to change", func(t *testing.T, c *cluster) { c.open("abc", to).Init(t.Context(), backend.InitOptions{}) }, "abc", "",
			backend.ErrBadOption, "use init without --reconfigure"},
		{"blank nodes", func(*testing.T, *cluster) {}, "abc", "", backend.ErrBadOption, "use init without --reconfigure"},
		{"a new node cannot be reached", func(t *testing.T, c *cluster) {
			c.open("abc", Config{}).Init(t.Context(), backend.InitOptions{})
			c.at["c"].Down(true)
		}, "abc", "", backend.ErrNoQuorum, "c: no quorum: memnode: down"},
		{"too few old ones", func(t *testing.T, c *cluster) {
			c.open("abc", Config{}).Init(t.Context(), backend.InitOptions{})
		}, "cde", "", backend.ErrNoQuorum, "1 of 3 nodes with the old configuration know the tokens given out, need 2"},
		{"too few that remember", func(t *testing.T, c *cluster) {
			c.open("abc", Config{}).Init(t.Context(), backend.InitOptions{})
			c.at["a"].Restart(true)
			c.at["b"].Restart(true)
		}, "abc", "", backend.ErrNoQuorum, "1 of 3 nodes with the old configuration know the tokens given out, need 2"},
		{"two old ones", func(t *testing.T, c *cluster) {
			c.open("ab", Config{}).Init(t.Context(), backend.InitOptions{})
			c.open("cd", Config{}).Init(t.Context(), backend.InitOptions{})
		}, "abc", "", backend.ErrMismatch, "different configurations of epoch 1: 1|1|2|2|30000|0|"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				test.prepare(t, c)
				var old []Node
				if test.old != "" {
					old = c.nodes(test.old)
				}
				before := c.guards()
				_, err := c.open(test.new, to).Reconfigure(t.Context(), old)
				if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %v, want %q", err, test.says)
				}
				if after := c.guards(); !maps.Equal(after, before) {
					t.Errorf("nodes show %v, and %v before", after, before)
				}
			})
		})
	}
}

// guards is what the nodes show.
func (c *cluster) guards() map[string]string {
	guards := make(map[string]string)
	for name, m := range c.at {
		guards[name], _, _ = m.Get(node.Keyspace{Namespace: "redlock"}.Guard())
	}
	return guards
}

// An operator may change his mind while a change is half-way.
func TestReconfigureToSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		before := c.open("abc", Config{})
		before.Init(t.Context(), backend.InitOptions{})
		token := c.take(before, "x").Token()
		f := &failing{left: 1}
		if _, err := c.over(f.wrap(c.nodes("abc")), Config{MaxTTL: 40 * time.Second}).Reconfigure(t.Context(), nil); err == nil {
			t.Fatal("not interrupted")
		}
		after := c.slow("abcde", Config{MaxTTL: 20 * time.Second})
		c.reconfigure(after, "")
		l := c.take(after, "x")
		if l.Token() <= token || l.TokenByClock() {
			t.Errorf("token %d after %d, by clock %v", l.Token(), token, l.TokenByClock())
		}
	})
}
