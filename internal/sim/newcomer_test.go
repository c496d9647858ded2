package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/internal/core"
	"example.com/redlock/memnode"
	"example.com/redlock/quorum"
)

// newcomerSeeds is how many of the fixed seeds run TestNewcomers.
const newcomerSeeds = 30

// TestNewcomers lets the clocks of nodes jump, one at a time, while Lockers that live
// for one lease only, and one that lives on, want the same name: nobody but the nodes
// remembers what the clocks showed. Other nodes hang at times, so that leases are on no
// more than a quorum. The clocks are steadily apart.
func TestNewcomers(t *testing.T) {
	first, count, fixed := seedRange(newcomerSeeds / min(raceFactor, 4))
	total := newCounts()
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { total.Add(runNewcomers(t, seed)) })
	}
	t.Logf("\n%v", total)
	if fixed && !t.Failed() {
		all := total.All()
		for _, what := range []string{"granted", "not granted", "clock: ahead", "clock: back", "clock: named", "node: hung"} {
			if all[what] == 0 {
				t.Errorf("%q never occurred", what)
			}
		}
	}
}

// newcomers is one run of TestNewcomers.
type newcomers struct {
	t      *testing.T
	seed   uint64
	maxTTL time.Duration
	nodes  []*memnode.Node

	mu     sync.Mutex
	rnd    *rand.Rand
	counts *Counts
	holder *redlock.Lease // who believes to hold the name, unless its context has ended
}

func runNewcomers(t *testing.T, seed uint64) *Counts {
	n := &newcomers{t: t, seed: seed, rnd: stream(seed, streamClient), counts: newCounts()}
	n.maxTTL = pick(n.rnd, 2*time.Second, 5*time.Second)
	for i := range pick(n.rnd, 3, 5) {
		m := memnode.New(fmt.Sprint(i))
		m.ShiftClock(wrongClock(n.rnd))
		n.nodes = append(n.nodes, m)
	}
	steady := n.open()
	if _, err := steady.Init(t.Context(), nil); err != nil {
		t.Errorf("seed %d failed: declaring the nodes: %v", seed, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n.hold(ctx, steady) // and has met the nodes
	synctest.Wait()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			n.hold(ctx, steady)
		}
	})
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				lk := n.open()
				n.hold(ctx, lk)
				n.close(lk)
				time.Sleep(n.upTo(n.maxTTL / 10))
			}
		})
	}
	n.jump()
	cancel()
	wg.Wait()
	n.close(steady)
	time.Sleep(straggle)
	return n.counts
}

func (n *newcomers) open() *redlock.Locker {
	var nodes []quorum.Node
	for _, m := range n.nodes {
		nodes = append(nodes, m.Client())
	}
	b, err := quorum.New(nodes, &quorum.Config{
		Cluster: "sim", MaxTTL: n.maxTTL, ConnectWait: time.Second, Logger: slog.New(slog.DiscardHandler),
		Observer: func(e redlock.Event) {
			if e.Kind == redlock.EventClockMoved {
				n.count("clock: named")
			}
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	lk, err := redlock.New(b, &redlock.Options{TTL: n.maxTTL})
	if err != nil {
		n.t.Fatal(err)
	}
	return lk
}

func (n *newcomers) close(lk *redlock.Locker) {
	if err := lk.Close(context.Background()); err != nil {
		n.t.Errorf("seed %d failed: closing: %v", n.seed, err)
	}
}

// hold takes the name, unless it is held for too long, and believes to hold it for a
// while.
func (n *newcomers) hold(ctx context.Context, lk *redlock.Locker) {
	l, err := lk.Acquire(ctx, "x", &redlock.AcquireOptions{Wait: n.upTo(n.maxTTL), NoRenew: n.one(2)})
	if err != nil {
		n.count("not granted")
		return
	}
	n.count("granted")
	n.mu.Lock()
	if other := n.holder; other != nil && other.Context().Err() == nil && time.Now().Before(other.Deadline()) {
		n.t.Errorf("seed %d failed: two holders, of tokens %d and %d", n.seed, other.Token(), l.Token())
	}
	n.holder = l
	n.mu.Unlock()
	wanted := time.NewTimer(n.upTo(2 * n.maxTTL))
	defer wanted.Stop()
	select {
	case <-wanted.C:
	case <-l.Context().Done():
	}
	n.mu.Lock()
	if n.holder == l {
		n.holder = nil
	}
	n.mu.Unlock()
	_ = l.Release(context.Background())
}

// jump lets one clock after the other jump, and other nodes hang: all that leases can
// bear. A node has left its quarantine before the next goes into one.
func (n *newcomers) jump() {
	over := core.QuarantineTime(n.maxTTL, 0.01, true) + 2*n.maxTTL + 2*time.Second
	for range 6 {
		i := n.roll(len(n.nodes))
		hung := n.nodes[(i+1+n.roll(len(n.nodes)-1))%len(n.nodes)]
		hung.Freeze()
		n.count("node: hung")
		time.Sleep(n.upTo(n.maxTTL))
		if n.one(2) {
			hung.Thaw()
		}
		if by := time.Second + n.upTo(time.Hour); n.one(3) {
			n.count("clock: back")
			n.nodes[i].ShiftClock(-by)
		} else {
			n.count("clock: ahead")
			n.nodes[i].ShiftClock(by)
		}
		time.Sleep(n.upTo(n.maxTTL))
		hung.Thaw()
		time.Sleep(over)
	}
}

func (n *newcomers) roll(k int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rnd.IntN(k)
}

// one reports whether the dice say so, one time out of k.
func (n *newcomers) one(k int) bool { return n.roll(k) == 0 }

func (n *newcomers) upTo(d time.Duration) time.Duration {
	return time.Duration(n.roll(int(d))) + 1
}

func (n *newcomers) count(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts.add(what)
}
