package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/fence"
	"example.com/redlock/testkit/await"
)

// TestEveryNumberOfNodes takes a lease through its whole life on 1 to 5 nodes.
func TestEveryNumberOfNodes(t *testing.T) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ns := start(t, n)
			events := &log{}
			a, b := ns.open(&redlock.Options{Observer: events.observe}), ns.open(nil)
			l := take(t, a, "x", &redlock.AcquireOptions{TTL: time.Second, Owner: "a"})
			for _, i := range ns.all() {
				await.True(t, patience, "the lease is on every node", func() bool { return ns.held(i, "x") != "" })
			}
			_, err := b.TryAcquire(t.Context(), "x", nil)
			is(t, err, []error{redlock.ErrHeld}, redlock.ErrNoQuorum)
			events.await(t, redlock.EventExtended, "x", 2)
			if err := l.Context().Err(); err != nil {
				t.Errorf("the context of a renewed lease: %v", err)
			}
			status, err := b.Inspect(t.Context(), "x")
			if err != nil || !status.Held || status.Owner != "a" || status.Token != l.Token() {
				t.Errorf("inspect: %+v, %v, want token %d", status, err, l.Token())
			}
			release(t, l)
			ns.empty(undone, ns.all()...)
			if cause := context.Cause(l.Context()); cause != redlock.ErrReleased {
				t.Errorf("cause %v after release", cause)
			}
		})
	}
}

// TestTokensOnlyGrow hands a name from client to client while each of them can
// reach another part of the nodes. At five nodes the tokens of two such parts
// can come out in the wrong order if a client asks too few nodes to agree.
func TestTokensOnlyGrow(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ns := start(t, n)
			clients := []*redlock.Locker{ns.open(nil), ns.open(nil), ns.open(nil)}
			spare := n - (n/2 + 1) // nodes that may be away
			var last fence.Token
			for round := range 40 {
				var away []int
				for k := range spare {
					away = append(away, (round*2+k)%n)
				}
				// A counter far ahead of the others and of the clock forces the
				// agreement in two rounds.
				ns.text(round*3%n, "EVAL", "for _, s in ipairs(redis.call('HKEYS', KEYS[1])) do "+
					"redis.call('HINCRBY', KEYS[1], s, 1000000) end return ''", "1", "redlock:tokens")
				ns.occupy("x", "e", time.Minute, away...)
				l := take(t, clients[round%len(clients)], "x", nil)
				if l.Token() <= last {
					t.Errorf("round %d: token %d after %d", round, l.Token(), last)
				}
				last = l.Token()
				release(t, l)
				ns.forget("x", away...)
				ns.empty(undone, ns.all()...)
			}
		})
	}
}
