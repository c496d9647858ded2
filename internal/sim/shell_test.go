package sim

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/memnode"
	"example.com/redlock/quorum"
)

// shellSeeds is how many of the fixed seeds also run the whole library.
const shellSeeds = 200

// TestShell lets Lockers work on a few names over nodes in memory while the
// faults of the same scripts strike, and checks the same: intervals, tokens,
// porcupine, progress once all is well; and that nothing stays on any node.
// What goroutines do first, and the library's own dice, differ from run to run.
func TestShell(t *testing.T) {
	first, count, fixed := seedRange(shellSeeds / min(raceFactor, 4))
	total := runShells(t, first, count)
	if fixed && !t.Failed() {
		all := total.All()
		for _, what := range []string{
			"granted", "held", "no quorum", "lost", "release failed", "moved", "claimed", "network: lost",
			"network: doubled", "network: overtaken", "answer: extend done", "answer: join done", "answer: raise done",
			"quarantined", "quarantine: over, floor by a clock", "quarantine: over, floor by counters",
		} {
			if all[what] == 0 {
				t.Errorf("%q never occurred", what)
			}
		}
	}
}

func runShells(t *testing.T, first, count uint64) *Counts {
	total := newCounts()
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { total.Add(runShell(t, seed)) })
	}
	t.Logf("\n%v", total)
	return total
}

// shell is one run.
type shell struct {
	t *testing.T
	Config
	script Script
	*wires
	rnd     *rand.Rand // under mu, as are counts and history
	counts  *Counts
	history []*Hold
	lockers []*redlock.Locker
}

func runShell(t *testing.T, seed uint64) *Counts {
	c := Draw(seed)
	script := DrawScript(c)
	counts := newCounts()
	s := &shell{t: t, Config: c, script: script, wires: newWires(c, counts), rnd: stream(seed, streamClient), counts: counts}
	for i := range c.Clients {
		s.lockers = append(s.lockers, s.open(i))
	}
	if _, err := s.lockers[0].Init(t.Context(), nil); err != nil {
		t.Errorf("seed %d failed: declaring the nodes: %v", seed, err)
	}
	turmoil, calm := context.WithTimeout(t.Context(), c.Turmoil)
	defer calm()
	clocks, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.runClocks(clocks) })
	for i := range c.Clients {
		for range c.Workers {
			wg.Go(func() {
				for turmoil.Err() == nil {
					s.work(turmoil, i)
				}
			})
		}
	}
	for _, f := range script {
		sleepUntil(s.began.Add(f.At))
		s.count("fault: " + string(f.Verb))
		if !s.strike(f) {
			s.operate(&wg, f)
		}
	}
	<-turmoil.Done()
	s.heal()
	s.claimAll()
	stop()
	wg.Wait()
	s.expectNothingLeft()
	for _, lk := range s.lockers {
		if err := lk.Close(context.Background()); err != nil {
			t.Errorf("seed %d failed: closing: %v", seed, err)
		}
	}
	time.Sleep(2 * straggle) // a claim may be under way when its Locker is closed
	synctest.Wait()
	s.mu.Lock() // what straggled has been counted
	defer s.mu.Unlock()
	for _, f := range s.check() {
		t.Errorf("seed %d failed: %s\n%v\nscript: %v", seed, f, c, script)
	}
	return counts
}

func (s *shell) check() (found []string) {
	j := judge(s.Config, s.script, s.history)
	found = j.failures
	if j.sound {
		found = append(found, checkLinearizable(s.history)...)
	}
	return found
}

func (s *shell) open(client int) *redlock.Locker {
	var nodes []quorum.Node
	for i, n := range s.nodes {
		nodes = append(nodes, &wire{Client: n.Client(), wires: s.wires, client: client, node: i})
	}
	b, err := quorum.New(nodes, &quorum.Config{
		Cluster: "sim", Quorum: s.Quorum, MaxTTL: s.MaxTTL, NodeTimeout: s.NodeTimeout, ConnectWait: time.Second,
		DriftRate: s.Drift.Rate, DriftFloor: s.Drift.Floor, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	lk, err := redlock.New(b, &redlock.Options{TTL: s.MaxTTL})
	if err != nil {
		s.t.Fatal(err)
	}
	return lk
}

func (s *shell) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *shell) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.add(what)
}

// work takes a name, holds it for a while, and gives it back in one of several
// ways.
func (s *shell) work(ctx context.Context, client int) {
	span := int((s.MaxTTL - s.MinTTL).Milliseconds()) + 1
	o := &redlock.AcquireOptions{
		TTL: s.MinTTL + time.Duration(s.roll(span))*time.Millisecond, Wait: s.upTo(2 * s.MaxTTL), NoRenew: s.roll(3) == 0,
	}
	if s.roll(3) == 0 {
		o.Wait = redlock.NoWait
	}
	callCtx, cancel := context.WithTimeout(ctx, s.upTo(2*s.MaxTTL))
	defer cancel()
	name := s.roll(s.Names)
	called := s.now()
	l, err := s.lockers[client].Acquire(callCtx, lockNames[name], o)
	if err != nil {
		s.countError(err)
		time.Sleep(s.upTo(s.MinTTL / 2))
		return
	}
	h := s.enter(&Hold{Name: name, Client: client, Token: uint64(l.Token()), ByClock: l.TokenByClock(), Called: called})
	s.holdFor(l, s.upTo(s.Hold))
	s.leave(h, l)
	if s.roll(4) == 0 {
		s.move(l, name)
		return
	}
	if err := l.Release(ctx); err != nil && !errors.Is(err, redlock.ErrLost) {
		s.count("release failed")
	}
}

func (s *shell) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rnd.Int64N(int64(d))) + 1
}

// holdFor believes to hold until it wants no longer, or the context ends.
func (s *shell) holdFor(l *redlock.Lease, d time.Duration) {
	wanted := time.NewTimer(d)
	defer wanted.Stop()
	select {
	case <-wanted.C:
	case <-l.Context().Done():
		s.count("lost")
	}
}

func (s *shell) move(l *redlock.Lease, name int) {
	handle, err := l.Handle()
	if err != nil {
		return
	}
	client, called := s.roll(s.Clients), s.now()
	moved, err := s.lockers[client].Resume(context.Background(), handle, nil)
	if err != nil {
		s.countError(err)
		return
	}
	s.count("moved")
	h := s.enter(&Hold{Name: name, Client: client, Token: uint64(moved.Token()), ByClock: moved.TokenByClock(), Called: called})
	s.holdFor(moved, s.upTo(s.Hold))
	s.leave(h, moved)
	_ = moved.Release(context.Background())
}

func (s *shell) enter(h *Hold) *Hold {
	s.count("granted")
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Start = s.now()
	s.history = append(s.history, h)
	return h
}

func (s *shell) leave(h *Hold, l *redlock.Lease) {
	deadline := l.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.End, h.Deadline = s.now(), s.instant(deadline)
}

func (s *shell) countError(err error) {
	switch {
	case errors.Is(err, redlock.ErrHeld):
		s.count("held")
	case errors.Is(err, redlock.ErrQuarantined):
		s.count("quarantined")
	case errors.Is(err, redlock.ErrNoQuorum):
		s.count("no quorum")
	case errors.Is(err, redlock.ErrLost): // of a handle
		s.count("moved too late")
	case errors.Is(err, context.DeadlineExceeded):
		s.count("context over")
	default:
		s.t.Errorf("seed %d failed: unexpected error: %v", s.Seed, err)
	}
}

// operate does what no wire can.
func (s *shell) operate(wg *sync.WaitGroup, f Fault) {
	if f.Verb != Break && f.Verb != Free {
		return
	}
	lk := s.lockers[s.roll(len(s.lockers))]
	wg.Go(func() {
		_ = lk.Break(context.Background(), lockNames[f.To.Index], &redlock.BreakOptions{Now: f.Verb == Free})
	})
}

// patience is longer than the simulator's: a Locker looks only every ten seconds
// whether nodes that it does not need have forgotten meanwhile.
func (s *shell) patience() time.Duration {
	const look = 10 * time.Second
	return s.Patience(s.script) + time.Duration(s.Nodes)*look
}

// claimAll demands that, once all is well, every Locker gets every name.
func (s *shell) claimAll() {
	ctx, cancel := context.WithTimeout(s.t.Context(), s.patience())
	defer cancel()
	var wg sync.WaitGroup
	for i, lk := range s.lockers {
		wg.Go(func() {
			for name := range s.Names {
				called := s.now()
				l, err := lk.Acquire(ctx, lockNames[name], nil)
				for (errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrQuarantined)) && ctx.Err() == nil {
					// The last faults may outlast ConnectWait, which is short.
					called = s.now()
					l, err = lk.Acquire(ctx, lockNames[name], nil)
				}
				if err != nil {
					s.t.Errorf("seed %d failed: progress: c%d does not get %s once all is well: %v", s.Seed, i, lockNames[name], err)
					return
				}
				s.count("claimed")
				h := s.enter(&Hold{Name: name, Client: i, Token: uint64(l.Token()), ByClock: l.TokenByClock(), Called: called})
				s.leave(h, l)
				if err := l.Release(ctx); err != nil {
					s.t.Errorf("seed %d failed: progress: c%d cannot release %s: %v", s.Seed, i, lockNames[name], err)
				}
			}
		})
	}
	wg.Wait()
}

// askEverywhere has every node asked for every name: one whose clock went back by
// an hour may have a lease left with as long to go, which the first who meets it
// cuts. A quorum may win before the others are asked, so the lease is renewed, until
// a node whose clock had moved is asked again, after a quarantine.
func (s *shell) askEverywhere() {
	ctx, cancel := context.WithTimeout(s.t.Context(), s.patience())
	defer cancel()
	for name := range s.Names {
		l, err := s.lockers[0].Acquire(ctx, lockNames[name], nil)
		if err != nil {
			s.t.Errorf("seed %d failed: progress: c0 does not get %s: %v", s.Seed, lockNames[name], err)
			continue
		}
		time.Sleep(4 * s.MaxTTL)
		_ = l.Release(s.t.Context())
	}
}

// expectNothingLeft demands that no node keeps a lease once a TTL has passed.
func (s *shell) expectNothingLeft() {
	s.askEverywhere()
	time.Sleep(2*s.MaxTTL + straggle)
	for i, n := range s.nodes {
		for name := range s.Names {
			if value, left, ok := stored(n, lockNames[name]); ok {
				s.t.Errorf("seed %d failed: n%d keeps %s, %v for %v", s.Seed, i, lockNames[name], value, left)
			}
		}
	}
}

// sleepUntil lets time go by, which in a bubble of testing/synctest takes none.
func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }

func stored(n *memnode.Node, name string) (string, time.Duration, bool) {
	return n.Get(keyspace.Lease(name))
}
