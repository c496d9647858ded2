package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/redlock/internal/core"
)

// client is a process that takes locks. Everything that happens in it happens
// by way of do, so that it can be paused and killed.
type client struct {
	*world
	index int
	rnd   *rand.Rand
	wall  time.Duration // how wrong its time of day is
	// life counts how often the process was started. What a former life waited
	// for no longer happens.
	life        int
	pausedUntil core.Instant
	backlog     []func()
	proposer    core.Proposer
	peers       []*peer
	ids         int
	attempts    []*attempt // of this life, for what must hold of each
}

func newClient(w *world, index int) *client {
	c := &client{
		world: w, index: index, wall: w.cfg.ClientOffset[index],
		rnd: stream(w.cfg.Seed, streamClient+uint64(index)),
	}
	c.boot()
	return c
}

// boot begins a life that knows nothing of the one before.
func (c *client) boot() {
	c.proposer = core.Proposer{}
	c.peers = nil
	c.backlog, c.pausedUntil = nil, 0
	c.attempts = nil
	for i := range c.servers {
		c.peers = append(c.peers, &peer{client: c, index: i})
	}
	c.after(checkEvery, c.checkNodes)
}

// checkEvery is how often a process looks whether nodes are what they were.
const checkEvery = 10 * time.Second

// checkNodes greets all nodes. Who waits for the quarantine of some would not
// notice otherwise that others forget meanwhile, and wait for those afterwards.
func (c *client) checkNodes() {
	for _, p := range c.peers {
		p.greet()
	}
	c.after(checkEvery, c.checkNodes)
}

// do has f happen in the process as it lives now: later, if it stands still.
func (c *client) do(life int, f func()) {
	switch {
	case c.life != life:
	case c.now < c.pausedUntil:
		c.backlog = append(c.backlog, f)
	default:
		f()
	}
}

// after has f happen in the process once d has passed.
func (c *client) after(d time.Duration, f func()) {
	life := c.life
	c.queue.after(d, func() { c.do(life, f) })
}

// pause lets the process stand still.
func (c *client) pause(d time.Duration) {
	c.pausedUntil = max(c.pausedUntil, c.now.Add(d))
	life := c.life
	c.queue.at(c.pausedUntil, func() { c.resume(life) })
}

// resume lets happen what the pause has held up: in any order, as goroutines
// that all have become ready do.
func (c *client) resume(life int) {
	if c.life != life || c.now < c.pausedUntil {
		return
	}
	backlog := c.backlog
	c.backlog = nil
	c.rnd.Shuffle(len(backlog), func(i, j int) { backlog[i], backlog[j] = backlog[j], backlog[i] })
	for _, f := range backlog {
		c.do(life, f)
	}
}

// crash kills the process. Another takes its place.
func (c *client) crash() {
	c.exit()
	c.after(c.upTo(c.cfg.MaxTTL), func() { c.employ() })
}

// exit ends the process. The next one knows nothing of it.
func (c *client) exit() {
	for _, a := range c.attempts {
		a.believeUntil(c.now)
	}
	c.life++
	c.boot()
}

// brief reports whether the process lives for one lease only.
func (c *client) brief() bool { return c.index < c.cfg.Brief }

// employ gives the process its workers.
func (c *client) employ() {
	workers := c.cfg.Workers
	if c.brief() {
		workers = 1
	}
	for range workers {
		k := &worker{client: c}
		k.rest()
	}
}

// awake is the clock that quarantines are watched with: it stands still while the
// machine is suspended, and nobody sets it.
func (c *client) awake() core.Instant { return c.now }

// propose returns the number for a new attempt to propose as its token.
func (c *client) propose() uint64 {
	return c.proposer.Next(epoch + (c.wall + time.Duration(c.now)).Microseconds())
}

// newID returns an attempt id that no other attempt has.
func (c *client) newID() string {
	c.ids++
	return fmt.Sprintf("%08x%024x", c.index, c.ids)
}

// upTo draws a length of time up to limit.
func (c *client) upTo(limit time.Duration) time.Duration {
	return time.Duration(c.rnd.Int64N(max(int64(limit), 1)) + 1)
}
