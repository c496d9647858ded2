package quorum

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// liar is a node that says something else of itself than it is.
type liar struct {
	Node
	mu     sync.Mutex
	lie    func(*node.HelloReply) error // nil for the truth
	hellos int
}

func (l *liar) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	r, err := l.Node.Hello(ctx, h)
	l.mu.Lock()
	l.hellos++
	lie := l.lie
	l.mu.Unlock()
	if err == nil && lie != nil {
		err = lie(&r)
	}
	return r, err
}

func (l *liar) say(lie func(*node.HelloReply) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lie = lie
}

func (l *liar) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hellos
}

// eventLog is an Observer that remembers what it is told of nodes.
type eventLog struct {
	mu     sync.Mutex
	events []backend.Event
}

func (l *eventLog) observe(e backend.Event) {
	if e.Node != "" {
		l.mu.Lock()
		l.events = append(l.events, e)
		l.mu.Unlock()
	}
}

// take returns the events so far and forgets them.
func (l *eventLog) take() []backend.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	return events
}

// threeWithALiar returns a backend whose third node is a liar.
func threeWithALiar(t *testing.T) (*Backend, *liar, *memnode.Node, *eventLog) {
	t.Helper()
	a, b, c := memnode.New("a:1/0"), memnode.New("[::1]:2/0"), memnode.New("c:3/0")
	l, events := &liar{Node: c.Client()}, &eventLog{}
	q, err := New([]Node{a.Client(), b.Client(), l}, &Config{Logger: slog.New(slog.DiscardHandler), Observer: events.observe})
	if err != nil {
		t.Fatal(err)
	}
	q.Init(t.Context(), backend.InitOptions{})
	return q, l, c, events
}

func evicting(r *node.HelloReply) error {
	r.MaxMemory, r.MaxMemoryPolicy = 1<<20, "allkeys-lru"
	return nil
}

func TestUnfitReasons(t *testing.T) {
	says := func(change func(*node.HelloReply)) func(*node.HelloReply) error {
		return func(r *node.HelloReply) error { change(r); return nil }
	}
	for _, test := range []struct {
		lie    func(*node.HelloReply) error
		reason backend.UnfitReason
		other  string
		text   string
	}{
		{says(func(r *node.HelloReply) { r.Version = "6.2.14" }), backend.UnfitVersion, "", `server version "6.2.14" is below 7`},
		{says(func(r *node.HelloReply) { r.Version = "" }), backend.UnfitVersion, "", `server version "" is below 7`},
		{says(func(r *node.HelloReply) { r.Mode = "cluster" }), backend.UnfitMode, "", "server runs in cluster mode"},
		{says(func(r *node.HelloReply) { r.Role, r.Master = "slave", "x:1" }), backend.UnfitReplica, "x:1", "server is a replica of x:1"},
		{says(func(r *node.HelloReply) { r.Role, r.Master = "slave", "a:1" }), backend.UnfitReplica, "a:1/0", "server is a replica of a:1/0, which is a node itself"},
		{says(func(r *node.HelloReply) { r.Role, r.Master = "slave", "::1:2" }), backend.UnfitReplica, "[::1]:2/0", "server is a replica of [::1]:2/0, which is a node itself"},
		{evicting, backend.UnfitEviction, "", "server may evict leases: maxmemory-policy is allkeys-lru"},
		{func(*node.HelloReply) error {
			return &node.CallError{Mode: "sentinel", Err: errors.New("ERR unknown command")}
		},
			backend.UnfitMode, "", "server runs in sentinel mode: ERR unknown command"},
		{func(*node.HelloReply) error { return &node.CallError{Denied: true, Err: errors.New("NOPERM eval")} },
			backend.UnfitPermission, "", "not permitted: NOPERM eval"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, l, _, _ := threeWithALiar(t)
			l.say(test.lie)
			s := b.Nodes(t.Context())[2]
			var u *backend.UnfitError
			if s.Standing != standingUnfit || !errors.As(s.Err, &u) || u.Reason != test.reason || u.Other != test.other ||
				s.Err.Error() != "node unfit: "+test.text {
				t.Errorf("want %q, other %q, %q; got %+v", test.reason, test.other, test.text, s)
			}
			if !errors.Is(s.Err, backend.ErrUnfit) || errors.Is(s.Err, backend.ErrNotPermitted) != (test.reason == backend.UnfitPermission) {
				t.Errorf("the sentinels of %v", s.Err)
			}
			_ = b.Close(t.Context())
		})
	}
}

// Room to evict in is no danger without a limit, and none with a policy that
// evicts nothing.
func TestFitMemory(t *testing.T) {
	for _, r := range []node.HelloReply{
		{MaxMemory: 0, MaxMemoryPolicy: "allkeys-lru"}, {MaxMemory: 1, MaxMemoryPolicy: "noeviction"},
	} {
		if err := evicts(r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestSameServerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, _, _ := threeWithALiar(t)
		first := b.Nodes(t.Context())[0]
		l.say(func(r *node.HelloReply) error { r.RunID = first.RunID; return nil })
		// Which of the two is the other depends on who answers first.
		named := make(map[string]string)
		for _, s := range b.Nodes(t.Context()) {
			var u *backend.UnfitError
			if errors.As(s.Err, &u) && u.Reason == backend.UnfitSameServer {
				named[s.Node] = u.Other
			}
		}
		if len(named) != 1 || named["a:1/0"] != "c:3/0" && named["c:3/0"] != "a:1/0" {
			t.Errorf("%q", named)
		}
		_ = b.Close(t.Context())
	})
}

// TestUnfitLater: a node that is used is asked every ten seconds. It goes on
// voting until it says that it is unfit, and votes again when it is not any more;
// a lease lives on with the others.
func TestUnfitLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, events := threeWithALiar(t)
		lost := make(chan error, 1)
		held, err := b.Acquire(t.Context(), backend.Request{Name: "held", TTL: 6 * time.Second, Lost: func(err error) { lost <- err }})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		asked := l.asked()
		time.Sleep(fitnessEvery - time.Second)
		if got := l.asked(); got != asked {
			t.Errorf("asked %d times within %v", got-asked, fitnessEvery)
		}
		l.say(evicting)
		time.Sleep(3 * time.Second) // past the next check, and less than a TTL of what it still has
		got := events.take()
		if len(got) != 1 || got[0].Kind != backend.EventNodeRefused || got[0].Node != "c:3/0" || reasonOf(got[0].Err) != backend.UnfitEviction {
			t.Errorf("events %+v", got)
		}
		other := mustTake(t, b, "other", "")
		if _, _, ok := m.Get("redlock:{other}"); ok {
			t.Error("the unfit node voted")
		}
		time.Sleep(time.Minute)
		if _, _, ok := m.Get("redlock:{held}"); ok || len(lost) != 0 {
			t.Errorf("still on the unfit node: %v, lost: %d", ok, len(lost))
		}
		l.say(nil)
		time.Sleep(5 * time.Second) // a renewal, which comes every two seconds, finds it fit
		if got := events.take(); len(got) == 0 || got[0].Kind != backend.EventNodeAccepted || got[0].Node != "c:3/0" {
			t.Errorf("events %+v", got)
		}
		if _, _, ok := m.Get("redlock:{held}"); !ok {
			t.Error("the lease has not come back to the node")
		}
		for _, l := range []backend.Lease{held, other} {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		_ = b.Close(t.Context())
	})
}

// reasonOf is why a node is unfit.
func reasonOf(err error) backend.UnfitReason {
	var u *backend.UnfitError
	if !errors.As(err, &u) {
		return ""
	}
	return u.Reason
}

// A backend that nobody uses asks nothing.
func TestIdleNodesAreNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, _, _ := threeWithALiar(t)
		use := func(name string) int {
			if err := mustTake(t, b, name, "").Release(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			return l.asked()
		}
		before := use("x")
		time.Sleep(time.Hour)
		if got := l.asked(); got != before {
			t.Errorf("asked %d times by nobody", got-before)
		}
		if got := use("y"); got != before+2 {
			t.Errorf("asked %d times after an hour, want once, and once for the record of its clock", got-before)
		}
		_ = b.Close(t.Context())
	})
}

// While a node is asked again, and does not answer, it is used as before: for as
// long as the check takes, only the silence of its own answers counts.
func TestVotesWhileAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, _ := threeWithALiar(t)
		_ = mustTake(t, b, "x", "").Release(t.Context())
		time.Sleep(fitnessEvery)
		begun, free := make(chan struct{}), make(chan struct{})
		l.say(func(*node.HelloReply) error { close(begun); <-free; return nil })
		_ = mustTake(t, b, "y", "").Release(t.Context())
		<-begun
		z := mustTake(t, b, "z", "")
		if v, _, ok := m.Get("redlock:{z}"); !ok || !strings.Contains(v, ":") {
			t.Error("the node does not vote while it is asked again")
		}
		close(free)
		_ = z.Release(t.Context())
		_ = b.Close(t.Context())
	})
}

// A node has no vote for longer than a lease lasts. That it no longer has the lease
// then is nothing to report.
func TestALeaseEndsInItsTimeOnAnUnfitNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, liar, c, events := threeWithALiar(t)
		l := mustTake(t, q, "x", "")
		liar.say(evicting)
		const renewed = 10 * time.Second // a third of the TTL, at most
		time.Sleep(fitnessEvery + renewed + 31*time.Second)
		if _, _, ok := c.Get("redlock:{x}"); ok {
			t.Fatal("the node still has the lease")
		}
		liar.say(nil)
		time.Sleep(3 * renewed) // it is greeted, found to have nothing, and joined
		if _, _, ok := c.Get("redlock:{x}"); !ok {
			t.Fatal("the node has not been joined")
		}
		reports := func() (n int) {
			for _, e := range events.take() {
				if e.Kind == backend.EventVanished {
					n++
				}
			}
			return n
		}
		if n := reports(); n != 0 {
			t.Errorf("reported %d times as gone before its time", n)
		}
		c.Delete("redlock:{x}")
		time.Sleep(renewed + time.Second)
		if n := reports(); n != 1 {
			t.Errorf("a lease that was deleted was reported %d times", n)
		}
		_ = l.Release(t.Context())
		_ = q.Close(t.Context())
	})
}
