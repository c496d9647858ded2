package interop

import (
	"errors"
	"fmt"
	"testing"

	"example.com/redlock"
)

func TestExclusionHoldsWhileAMinorityIsDown(t *testing.T) {
	for _, n := range sizes[1:] {
		t.Run(fmt.Sprintf("nodes=%d", n), func(t *testing.T) {
			t.Parallel() // it is mostly waiting for servers that are dead
			ns := start(t, n)
			// Opened before: a client that has known a node loses it.
			clients := openAll(t, ns)
			ns.kill(n - ns.quorum())
			eachPair(t, ns, func(t *testing.T, name string, first, second kind) {
				h := waitFor(t, clients[first.name], name)
				if _, err := clients[second.name].try(name, longTTL); err == nil {
					t.Error("had while it was held")
				}
				mustRelease(t, h)
				mustRelease(t, waitFor(t, clients[second.name], name))
			})
		})
	}
}

// openAll opens one client of each kind and lets it meet all nodes.
func openAll(t *testing.T, ns *nodes) map[string]client {
	t.Helper()
	clients := make(map[string]client)
	for _, k := range append([]kind{ours}, rivals...) {
		c := ns.open(t, k)
		mustRelease(t, mustTry(t, c, "warm-up of "+k.name, longTTL))
		clients[k.name] = c
	}
	return clients
}

func TestNobodyGetsAnythingWithoutAQuorum(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		t.Parallel()
		clients := openAll(t, ns)
		ns.kill(ns.quorum())
		for who, c := range clients {
			if _, err := c.try("lost/"+who, longTTL); err == nil || errors.Is(err, errRefused) {
				t.Errorf("%s: %v, want that too few nodes answer", who, err)
			}
		}
		_, err := clients[ours.name].(*ourClient).lk.TryAcquire(t.Context(), "lost", nil)
		if !errors.Is(err, redlock.ErrNoQuorum) {
			t.Errorf("ours: %v, want ErrNoQuorum", err)
		}
	})
}

// TestAHolderThatLosesTheQuorumKeepsOthersOut: what is left of the lock on the
// living nodes is not enough for the next one before the servers are back; and
// the holder learns that it cannot go on.
func TestAHolderThatLosesTheQuorumKeepsOthersOut(t *testing.T) {
	for _, n := range sizes[1:] {
		t.Run(fmt.Sprintf("nodes=%d", n), func(t *testing.T) {
			t.Parallel()
			ns := start(t, n)
			clients := openAll(t, ns)
			held := make(map[string]held)
			for who, c := range clients {
				held[who] = mustTry(t, c, "lost by "+who, longTTL)
			}
			ns.kill(ns.quorum())
			for holder, h := range held {
				for who, c := range clients {
					if _, err := c.try("lost by "+holder, longTTL); err == nil {
						t.Errorf("%s has what %s holds", who, holder)
					}
				}
				if err := h.extend(); err == nil {
					t.Errorf("%s extends without a quorum", holder)
				}
			}
		})
	}
}

// TestAMinorityOfForeignKeysIsOutvoted: what somebody left on few nodes keeps
// nobody out, and is not touched for it. On a quorum of them it does keep us out.
func TestAMinorityOfForeignKeysIsOutvoted(t *testing.T) {
	for _, n := range sizes[1:] {
		t.Run(fmt.Sprintf("nodes=%d", n), func(t *testing.T) {
			ns := start(t, n)
			lk := ns.openLocker(t)
			for count := 1; count <= n; count++ {
				name := fmt.Sprintf("on %d of %d", count, n)
				for i := range count {
					ns.do(i, "SET", name, "foreign", "PX", longTTL.Milliseconds())
				}
				before := ns.look(name)
				l, err := lk.TryAcquire(t.Context(), name, nil)
				switch {
				case count < ns.quorum() || n-count >= ns.quorum():
					if err != nil {
						t.Errorf("%s: %v, want it outvoted", name, err)
						continue
					}
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("%s: release: %v", name, err)
					}
				case !errors.Is(err, redlock.ErrHeld):
					t.Errorf("%s: %v, want ErrHeld", name, err)
				}
				for i, k := range ns.look(name)[:count] {
					if k != before[i] {
						t.Errorf("%s: node %d has %+v, had %+v", name, i+1, k, before[i])
					}
				}
			}
		})
	}
}
