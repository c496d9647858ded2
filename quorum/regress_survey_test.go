package quorum

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// greeted is a node that takes greetings as hello says.
type greeted struct {
	Node
	hello func(context.Context, node.Hello) (node.HelloReply, error)
}

func (g *greeted) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	return g.hello(ctx, h)
}

// newcomer returns a client of ms whose greetings hello passes on.
func newcomer(t *testing.T, ms []*memnode.Node, log *slog.Logger,
	hello func(context.Context, Node, node.Hello) (node.HelloReply, error)) *Backend {
	t.Helper()
	var nodes []Node
	for _, m := range ms {
		client := m.Client()
		nodes = append(nodes, &greeted{client, func(ctx context.Context, h node.Hello) (node.HelloReply, error) {
			return hello(ctx, client, h)
		}})
	}
	b, err := New(nodes, &Config{Logger: log, ConnectWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Nodes that cannot keep a record, for want of memory for instance, are asked to now and
// then, and not at once again by each greeting.
func TestARecordThatIsNotKeptIsNoReasonToHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		var asked atomic.Int64
		late := newcomer(t, ms, slog.New(slog.DiscardHandler), func(ctx context.Context, n Node, h node.Hello) (node.HelloReply, error) {
			time.Sleep(time.Millisecond)
			if h.Record != "" {
				asked.Add(1)
			}
			h.Record = ""
			return n.Hello(ctx, h)
		})
		_, _ = late.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, NoRenew: true})
		time.Sleep(10 * time.Second)
		if n := asked.Load(); n < 3 || n > 3*11 {
			t.Errorf("three nodes were asked %d times in ten seconds", n)
		}
		_ = late.Close(t.Context())
		_ = b.Close(t.Context())
	})
}

// A newcomer's log is stuck when it is to say that a clock moved: the greetings that wait
// for what the others say of it go on.
func TestAStuckLogHoldsUpNoGreeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		_ = mustTake(t, b, "x", "").Release(t.Context()) // clocks are recorded
		ms[1].ShiftClock(time.Minute)
		ms[2].Delay(2 * time.Millisecond) // it is greeted when node 1 has been
		log := stuckHandler{slog.DiscardHandler, new(atomic.Bool), make(chan struct{})}
		log.stuck.Store(true)
		late := newcomer(t, ms, slog.New(log), func(ctx context.Context, n Node, h node.Hello) (node.HelloReply, error) {
			return n.Hello(ctx, h)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		l, err := late.Acquire(ctx, backend.Request{Name: "x", TTL: time.Second, NoRenew: true})
		if err != nil {
			t.Errorf("two nodes of three are well: %v", err)
		} else {
			_ = l.Release(t.Context())
		}
		close(log.free)
		_ = late.Close(t.Context())
		_ = b.Close(t.Context())
	})
}

// A holds on nodes 0 and 1, and the clock of node 1 leaps ahead. A newcomer sees that, but
// is not answered when it asks all nodes once more: until it is, it takes nothing.
func TestANewcomerThatCannotTellTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		_ = mustTake(t, b, "y", "").Release(t.Context()) // clocks are recorded
		ms[2].Down(true)
		held := mustTake(t, b, "x", "")
		ms[2].Down(false)
		ms[1].ShiftClock(time.Minute)
		var lost atomic.Bool
		lost.Store(true)
		late := newcomer(t, ms, slog.New(slog.DiscardHandler), func(ctx context.Context, n Node, h node.Hello) (node.HelloReply, error) {
			if h.Intent == node.Look && lost.Load() {
				<-ctx.Done()
				return node.HelloReply{}, &node.CallError{Err: ctx.Err()}
			}
			return n.Hello(ctx, h)
		})
		request := backend.Request{Name: "x", TTL: time.Second, NoRenew: true, Wait: time.Second}
		if _, err := late.Acquire(t.Context(), request); err == nil {
			t.Error("two holders")
		}
		lost.Store(false)
		_ = held.Release(t.Context())
		request.Wait = 5 * time.Second
		l, err := late.Acquire(t.Context(), request)
		if err != nil {
			t.Fatalf("it can tell by now: %v", err)
		}
		_ = l.Release(t.Context())
		_ = late.Close(t.Context())
		_ = b.Close(t.Context())
	})
}
