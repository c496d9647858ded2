package redlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/fence"
	"example.com/redlock/locktest"
)

var (
	chaosSeed  = flag.Uint64("chaos.seed", 0, "run only this seed of TestChaos")
	chaosSeeds = flag.Uint64("chaos.seeds", 60, "run this many seeds of TestChaos")
)

// TestChaos lets several Lockers work on a few names while nodes freeze, go
// down, restart with their memory, answer late or not at all, and checks that
// believed-held intervals never overlap, that tokens grow from grant to grant,
// and that after the last release nothing stays on any node. A failing seed is
// printed; -chaos.seed runs it alone.
func TestChaos(t *testing.T) {
	seeds := []uint64{*chaosSeed}
	if *chaosSeed == 0 {
		seeds = nil
		for seed := range *chaosSeeds {
			seeds = append(seeds, seed+1)
		}
	}
	total := chaosCounts{}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { total.add(runChaos(t, seed)) })
		})
	}
	t.Logf("%+v", total)
	if *chaosSeed == 0 && (total.granted == 0 || total.held == 0 || total.noQuorum == 0 || total.lost == 0 ||
		total.releaseFailed == 0 || total.moved == 0) {
		t.Errorf("some outcome never occurred: %+v", total)
	}
}

type chaosCounts struct{ granted, held, noQuorum, lost, releaseFailed, moved, other int }

func (c *chaosCounts) add(d chaosCounts) {
	c.granted += d.granted
	c.held += d.held
	c.noQuorum += d.noQuorum
	c.lost += d.lost
	c.releaseFailed += d.releaseFailed
	c.moved += d.moved
	c.other += d.other
}

// chaos is one run: what the workers believe, and the counts.
type chaos struct {
	t    *testing.T
	rnd  *rand.Rand // only under mu
	mu   sync.Mutex
	hold map[string]fence.Token // who believes to hold each name
	last map[string]fence.Token
	chaosCounts
}

func (c *chaos) roll(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

func runChaos(t *testing.T, seed uint64) chaosCounts {
	c := &chaos{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)),
		hold: map[string]fence.Token{}, last: map[string]fence.Token{},
	}
	n := 1 + c.roll(5)
	o := &redlock.Options{ConnectWait: time.Second, MaxTTL: 5 * time.Second, TTL: time.Second}
	if n > 2 {
		o.Quorum = n/2 + 1 + c.roll(2)
	}
	first, service := locktest.New(t, n, o)
	lockers := []*redlock.Locker{first}
	for range 1 + c.roll(3) {
		lockers = append(lockers, service.Open(t, o))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i, lk := range lockers {
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					c.work(ctx, lk, lockers[(i+1)%len(lockers)], fmt.Sprint("name", c.roll(2)))
				}
			})
		}
	}
	c.faults(ctx, service)
	wg.Wait()
	c.expectNothingLeft(first, service)
	return c.chaosCounts
}

// work takes a name, holds it for a while, and gives it back in one of several
// ways.
func (c *chaos) work(ctx context.Context, lk, other *redlock.Locker, name string) {
	o := &redlock.AcquireOptions{Wait: time.Duration(c.roll(3)-1) * 700 * time.Millisecond, NoRenew: c.roll(4) == 0}
	if o.Wait < 0 {
		o.Wait = redlock.NoWait
	}
	callCtx, cancel := context.WithTimeout(ctx, time.Duration(1+c.roll(3000))*time.Millisecond)
	defer cancel()
	l, err := lk.Acquire(callCtx, name, o)
	if err != nil {
		c.countError(err)
		c.pause(ctx)
		return
	}
	c.enter(name, l.Token())
	c.holdFor(l)
	c.leave(name, l.Token())
	if c.roll(4) == 0 {
		c.move(l, other, name)
		return
	}
	if err := l.Release(ctx); err != nil && !errors.Is(err, redlock.ErrLost) {
		c.count(&c.releaseFailed)
	}
}

// holdFor believes to hold until it wants no longer, the context ends, or the
// deadline passes: whichever is first.
func (c *chaos) holdFor(l *redlock.Lease) {
	wanted := time.NewTimer(time.Duration(c.roll(3000)) * time.Millisecond)
	defer wanted.Stop()
	select {
	case <-wanted.C:
	case <-l.Context().Done():
		c.count(&c.lost)
	}
}

func (c *chaos) move(l *redlock.Lease, to *redlock.Locker, name string) {
	handle, err := l.Handle()
	if err != nil {
		return
	}
	moved, err := to.Resume(context.Background(), handle, nil)
	if err != nil {
		c.countError(err)
		return
	}
	c.count(&c.moved)
	c.enter(name, moved.Token())
	c.holdFor(moved)
	c.leave(name, moved.Token())
	_ = moved.Release(context.Background())
}

func (c *chaos) enter(name string, token fence.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted++
	if holder, taken := c.hold[name]; taken {
		c.t.Errorf("%s: token %d is granted while %d is believed held", name, token, holder)
	}
	if token <= c.last[name] {
		c.t.Errorf("%s: token %d after %d", name, token, c.last[name])
	}
	c.hold[name], c.last[name] = token, token
}

func (c *chaos) leave(name string, token fence.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold[name] == token {
		delete(c.hold, name)
	}
}

func (c *chaos) count(what *int) {
	c.mu.Lock()
	*what++
	c.mu.Unlock()
}

func (c *chaos) countError(err error) {
	switch {
	case errors.Is(err, redlock.ErrHeld):
		c.count(&c.held)
	case errors.Is(err, redlock.ErrNoQuorum):
		c.count(&c.noQuorum)
	default:
		c.count(&c.other)
	}
}

func (c *chaos) pause(ctx context.Context) {
	select {
	case <-time.After(time.Duration(1+c.roll(200)) * time.Millisecond):
	case <-ctx.Done():
	}
}

// faults disturbs the nodes until ctx ends, and heals them.
func (c *chaos) faults(ctx context.Context, s *locktest.Service) {
	for ctx.Err() == nil {
		n := s.Nodes[c.roll(len(s.Nodes))]
		switch c.roll(9) {
		case 0:
			n.Freeze()
		case 1:
			n.Down(true)
		case 2:
			n.DropReplies(true)
		case 3:
			n.Delay(time.Duration(c.roll(60)) * time.Millisecond)
		case 4:
			n.Restart(true)
		default: // healing is as likely as all the rest
			n.Thaw()
			n.Down(false)
			n.DropReplies(false)
			n.Delay(0)
		}
		c.pause(ctx)
	}
	for _, n := range s.Nodes {
		n.Thaw()
		n.Down(false)
		n.DropReplies(false)
		n.Delay(0)
	}
}

// expectNothingLeft demands that, once the nodes are well and a TTL has passed,
// every name can be taken at once and leaves no key.
func (c *chaos) expectNothingLeft(lk *redlock.Locker, s *locktest.Service) {
	time.Sleep(7 * time.Second)
	for _, name := range []string{"name0", "name1"} {
		if got := stored(s, name); got != 0 {
			c.t.Errorf("%d nodes still store %s", got, name)
		}
		l, err := lk.TryAcquire(context.Background(), name, nil)
		if err != nil {
			c.t.Errorf("%s cannot be taken once all is well: %v", name, err)
			continue
		}
		c.enter(name, l.Token())
		if err := l.Release(context.Background()); err != nil {
			c.t.Error(err)
		}
		c.leave(name, l.Token())
	}
	synctest.Wait()
	for _, name := range []string{"name0", "name1"} {
		if got := stored(s, name); got != 0 {
			c.t.Errorf("%d nodes still store %s after its release", got, name)
		}
	}
}
