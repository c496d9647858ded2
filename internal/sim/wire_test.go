package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// wires are the links of a run of the whole library, with the faults of the
// script. They stand between quorum and memnode.
type wires struct {
	mu          sync.Mutex
	began       time.Time
	net         *network // its links and its dice; its queue is not used
	nodes       []*memnode.Node
	rates       []float64
	pausedUntil []time.Time // by client
}

func newWires(c Config, counts *Counts) *wires {
	w := &wires{
		began: time.Now(), net: newNetwork(&queue{}, c, counts),
		rates: make([]float64, c.Nodes), pausedUntil: make([]time.Time, c.Clients),
	}
	for i := range c.Nodes {
		n := memnode.New(End{'n', i}.String())
		n.ShiftClock(c.NodeOffset[i])
		w.nodes = append(w.nodes, n)
	}
	return w
}

// now is the time since the beginning, for histories.
func (w *wires) now() core.Instant { return w.instant(time.Now()) }

func (w *wires) instant(t time.Time) core.Instant { return core.Instant(t.Sub(w.began)) + 1 }

// wire is a client's connection to a node.
type wire struct {
	*memnode.Client
	*wires
	client, node int
}

var errReset = errors.New("sim: connection reset")

// plan is what the network is going to do to one message.
type plan struct {
	lost, doubled, straggles bool
	arrives                  time.Time
}

// plan rolls the dice for a message.
func (w *wire) plan(back bool) plan {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, l := w.net, w.net.links[route{w.client, w.node, back}]
	n.now = w.now()
	p := plan{lost: l.cut || n.chance(n.drop), doubled: !back && n.chance(n.dup), straggles: !back && n.chance(n.reorder)}
	held := w.instant(w.pausedUntil[w.client])
	// Two messages never arrive at one instant: their order would be lost.
	l.last = max(l.last+1, n.now.Add(n.delay(l)), held)
	p.arrives = w.began.Add(time.Duration(l.last))
	for what, happens := range map[string]bool{"lost": p.lost, "doubled": p.doubled, "overtaken": p.straggles} {
		if happens {
			n.counts.add("network: " + what)
		}
	}
	return p
}

func (w *wire) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.net.upTo(d)
}

// Hello carries a greeting.
func (w *wire) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	return carry(ctx, w, func(ctx context.Context) (node.HelloReply, error) { return w.Client.Hello(ctx, h) })
}

// Watch carries a claim, or the end of a quarantine.
func (w *wire) Watch(ctx context.Context, watch node.Watch) (node.WatchReply, error) {
	return carry(ctx, w, func(ctx context.Context) (node.WatchReply, error) {
		reply, err := w.Client.Watch(ctx, watch)
		if err == nil && reply.Lifted {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.net.counts.either(watch.ByClock, "quarantine: over, floor by a clock", "quarantine: over, floor by counters")
		}
		return reply, err
	})
}

// Tokens carries the question for the largest number.
func (w *wire) Tokens(ctx context.Context, t node.Tokens) (node.TokensReply, error) {
	return carry(ctx, w, func(ctx context.Context) (node.TokensReply, error) { return w.Client.Tokens(ctx, t) })
}

// Call carries a call.
func (w *wire) Call(ctx context.Context, c *node.Call) (*node.Reply, error) {
	kept := *c // for what arrives when the caller is gone
	kept.Ops = slices.Clone(c.Ops)
	return carry(ctx, w, func(ctx context.Context) (*node.Reply, error) {
		reply, err := w.Client.Call(ctx, &kept)
		if err == nil {
			w.tally(kept.Ops, reply.Answers)
		}
		return reply, err
	})
}

func (w *wire) tally(ops []node.Op, answers []node.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, op := range ops {
		w.net.counts.answers[op.Kind][answers[i].Code]++
	}
}

// carry has do happen at the node, as the network pleases.
func carry[T any](ctx context.Context, w *wire, do func(context.Context) (T, error)) (T, error) {
	there := w.plan(false)
	if there.doubled || there.straggles {
		time.AfterFunc(w.upTo(straggle), func() {
			// Nobody waits for this answer.
			ctx, cancel := context.WithTimeout(context.Background(), straggle)
			defer cancel()
			_, _ = do(ctx)
		})
	}
	var none T
	lost := func() (T, error) {
		<-ctx.Done()
		return none, &node.CallError{Sent: true, Err: ctx.Err()}
	}
	switch {
	case there.straggles: // what a connection carried that is no more
		return none, &node.CallError{Sent: true, Err: errReset}
	case there.lost:
		return lost()
	}
	sleepUntil(there.arrives)
	reply, err := do(ctx)
	if err != nil {
		return none, err
	}
	back := w.plan(true)
	if back.lost {
		return lost()
	}
	sleepUntil(back.arrives)
	return reply, nil
}

// strike makes a fault happen. It reports false for those that only the
// simulator can: no goroutine can be stopped from outside.
func (w *wires) strike(f Fault) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch f.Verb {
	case Partition:
		w.net.each(f.From, f.To, func(l *link) { l.cut = true })
	case Heal:
		w.net.each(f.From, f.To, func(l *link) { l.cut = false })
	case Slow:
		w.net.each(f.From, f.To, func(l *link) { l.slow = f.For })
	case Drop:
		w.net.drop = f.Much
	case Dup:
		w.net.dup = f.Much
	case Reorder:
		w.net.reorder = f.Much
	case Pause: // nothing comes from or to the process
		for i := range w.pausedUntil {
			if f.To.is(i) {
				w.pausedUntil[i] = time.Now().Add(f.For)
			}
		}
	case Crash, Stall, Wall, Break, Free:
		return false
	default:
		for i, n := range w.nodes {
			if f.To.is(i) {
				w.strikeNode(i, n, f)
			}
		}
	}
	return true
}

func (w *wires) strikeNode(i int, n *memnode.Node, f Fault) {
	switch f.Verb {
	case Freeze:
		n.Freeze()
	case Thaw:
		n.Thaw()
	case Down:
		n.Down(true)
	case Up:
		n.Down(false)
	case Restart:
		n.Restart(!f.Forget)
	case Restore:
		n.Restart(true)
		keepOnlyGuard(n)
	case Promote:
		n.Promote()
		keepOnlyGuard(n)
	case Flush:
		n.Wipe()
	case Rate:
		w.rates[i] = f.Much
	case Step:
		n.ShiftClock(f.For)
	}
}

// keepOnlyGuard leaves nothing to a node but its guard: the oldest data that it can
// come back with.
func keepOnlyGuard(n *memnode.Node) {
	n.Delete(keyspace.Tokens())
	for _, name := range lockNames {
		n.Delete(keyspace.Lease(name))
	}
}

// heal ends all faults but the rates of the clocks.
func (w *wires) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.net.drop, w.net.dup, w.net.reorder = 0, 0, 0
	for _, l := range w.net.links {
		l.cut, l.slow = false, 0
	}
	for _, n := range w.nodes {
		n.Thaw()
		n.Down(false)
	}
}

// tick is how often the nodes' clocks are moved by what they run too fast.
const tick = 10 * time.Millisecond

// runClocks moves the nodes' clocks until ctx ends.
func (w *wires) runClocks(ctx context.Context) {
	for ctx.Err() == nil {
		sleepUntil(time.Now().Add(tick))
		w.mu.Lock()
		for i, rate := range w.rates {
			if rate != 0 {
				w.nodes[i].ShiftClock(time.Duration(float64(tick) * rate))
			}
		}
		w.mu.Unlock()
	}
}
