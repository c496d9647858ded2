package quorum

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// declared is a client of three nodes that it has declared.
func (c *cluster) declared(names string, cfg Config) *Backend {
	c.t.Helper()
	b := c.open(names, cfg)
	for _, s := range b.Init(c.t.Context(), backend.InitOptions{}) {
		if s.Err != nil {
			c.t.Fatal(s.Err)
		}
	}
	return b
}

// free takes a name and gives it back.
func (c *cluster) free(b *Backend, name string) {
	c.t.Helper()
	l, err := b.Acquire(c.t.Context(), backend.Request{Name: name, TTL: time.Second, Wait: 10 * time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	_ = l.Release(context.Background())
}

// insist has a client that gets nothing try again and again.
func (c *cluster) insist(b *Backend, times int) {
	c.t.Helper()
	for range times {
		_, err := b.Acquire(c.t.Context(), backend.Request{Name: "y", TTL: time.Second, Wait: 100 * time.Millisecond})
		if err == nil {
			c.t.Fatal("a lease without a quorum")
		}
		time.Sleep(900 * time.Millisecond)
	}
}

// Somebody runs a client with another MaxTTL, and gets nothing. One node loses its
// data: the quarantine that he would wait for is the shorter one. If he gave the node
// his configuration, nobody else would get a lease any more.
func TestAClientWithAnotherConfigurationTakesNoBlankNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		b := c.declared("abc", Config{MaxTTL: time.Minute})
		other := c.open("abc", Config{MaxTTL: 2 * time.Second})
		c.insist(other, 1)
		c.at["c"].Wipe()
		c.insist(other, 60)
		other.Init(t.Context(), backend.InitOptions{Force: true})
		c.free(b, "x")
		time.Sleep(2 * time.Minute)
		if s := b.Nodes(t.Context())[2]; s.Err != nil {
			t.Errorf("node c is lost: %v", s.Err)
		}
		c.free(b, "x")
	})
}

// One who is cut off from all nodes but that which restarted does not make it count on
// from its clock: for those who see the others its counters would be worth less from
// then on.
func TestWhoSeesOneNodeLeavesItToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		b := c.declared("abc", Config{MaxTTL: 2 * time.Second})
		c.free(b, "x")
		cut := newCluster(t)
		cut.at["c"] = c.at["c"]
		for _, m := range []*memnode.Node{cut.at["a"], cut.at["b"]} {
			m.Down(true)
		}
		c.at["c"].Restart(true)
		c.insist(cut.open("abc", Config{MaxTTL: 2 * time.Second}), 10)
		c.free(b, "x")
		time.Sleep(10 * time.Second)
		if s := b.Nodes(t.Context())[2]; s.Err != nil || s.ByClock {
			t.Errorf("node c: %v, by its clock: %v", s.Err, s.ByClock)
		}
		c.free(b, "x")
	})
}

// A change is interrupted when all nodes are fenced, and some of them lose their data,
// the fence included. How long leases of the old configuration last only the others
// know, and nobody votes before the change is carried out with one of them.
func TestBlankNodesDoNotVoteBesideAFence(t *testing.T) {
	for _, wiped := range []string{"c", "bc"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			before := c.declared("abc", Config{MaxTTL: 5 * time.Minute})
			h := c.hold(before, "x", 5*time.Minute)
			f := &failing{left: 3}
			if _, err := c.over(f.wrap(c.nodes("abc")), Config{}).Reconfigure(t.Context(), nil); err == nil {
				t.Fatal("not interrupted")
			}
			for _, name := range strings.Split(wiped, "") {
				c.at[name].Wipe()
			}
			after := c.open("abc", Config{})
			c.insist(after, 60) // before the holder's renewal
			if wiped == "c" {   // else nobody can tell the tokens that were given out
				c.reconfigure(after, "")
				c.take(after, "x")
				if len(h.lost) == 0 {
					t.Errorf("two holders for %v", time.Until(h.Deadline()))
				}
			}
		})
	}
}
