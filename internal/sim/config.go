package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// Config is what one run is about. Draw makes it from a seed.
type Config struct {
	Seed            uint64
	Nodes, Quorum   int
	Clients, Names  int
	Workers         int // of each client
	MinTTL, MaxTTL  time.Duration
	NodeTimeout     time.Duration // 0: by the TTL, as the library has it
	Drift           core.Drift
	Latency, Jitter time.Duration // of a link, one way
	Hold            time.Duration // the longest time a worker wants a name
	Turmoil         time.Duration // how long faults strike
	// Brief is how many of the clients live for one lease only.
	Brief int
	// CounterOnly keeps nodes out that would begin to count at their clock.
	CounterOnly bool
	// Wild runs go beyond what leases can bear.
	Wild bool
	// NodeOffset and ClientOffset are how wrong the wall clocks are.
	NodeOffset, ClientOffset []time.Duration
}

// The streams of random numbers of a run: one each, so that an edited script
// changes as little as possible of the rest.
const (
	streamConfig = iota
	streamScript
	streamNetwork
	streamHeal
	streamClient // and those behind it: one per client
)

func stream(seed, which uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, which)) }

// Draw makes a configuration from a seed.
func Draw(seed uint64) Config {
	rnd := stream(seed, streamConfig)
	c := Config{
		Seed:    seed,
		Nodes:   pick(rnd, 5, 5, 5, 3, 3, 4, 2, 1),
		Clients: 2 + rnd.IntN(3),
		Names:   1 + rnd.IntN(2),
		Workers: 1 + rnd.IntN(2),
		MaxTTL:  pick(rnd, 2*time.Second, 2*time.Second, 3*time.Second, 5*time.Second),
		Latency: time.Duration(50+rnd.IntN(pick(rnd, 500, 5000))) * time.Microsecond,
		Wild:    rnd.IntN(5) == 0,
	}
	c.Quorum = core.Majority(c.Nodes)
	if rnd.IntN(4) == 0 {
		c.Quorum += rnd.IntN(c.Nodes - c.Quorum + 1)
	}
	if rnd.IntN(12) == 0 {
		// As long as a node without a configuration stays away: it comes back while
		// the faults still strike. There is much time to try, so fewer do.
		c.MaxTTL, c.Clients, c.Names, c.Workers = 30*time.Second, 2, 1, 1
	}
	c.MinTTL = pick(rnd, c.MaxTTL/10, c.MaxTTL/3, c.MaxTTL).Truncate(time.Millisecond)
	c.Drift = core.Drift{Rate: pick(rnd, 0.01, 0.01, 0.05, 0.1, 0.2), Floor: 2 * time.Millisecond}
	// Without faults every answer is in time.
	c.Jitter = min(time.Duration(rnd.Int64N(int64(2*c.Latency))), minTimeout/2-c.Latency-time.Millisecond)
	if rnd.IntN(3) == 0 {
		c.NodeTimeout = c.MinTTL / 4
	}
	c.Hold = pick(rnd, c.MaxTTL/50, c.MaxTTL/10, c.MaxTTL/2, 2*c.MaxTTL)
	c.Turmoil = 6 * c.MaxTTL
	c.Brief = pick(rnd, 0, 0, 0, 1, c.Clients)
	c.CounterOnly = rnd.IntN(8) == 0
	right := rnd.IntN(2) == 0
	for range c.Nodes {
		offset := wrongClock(rnd)
		if right {
			offset = time.Duration(rnd.IntN(1000)) * time.Microsecond
		}
		c.NodeOffset = append(c.NodeOffset, offset)
	}
	for range c.Clients {
		c.ClientOffset = append(c.ClientOffset, wrongClock(rnd))
	}
	switch rnd.IntN(8) {
	case 0, 1:
		// No client knows the time of day: proposals are one more than what was
		// seen, so that those of different clients often are the same number.
		for i := range c.ClientOffset {
			c.ClientOffset[i] = -60 * 365 * 24 * time.Hour
		}
	case 2:
		// A wall clock beyond the largest token: what it proposes must not use
		// up the numbers.
		c.ClientOffset[0] = 260 * 365 * 24 * time.Hour
	}
	return c
}

// wrongClock draws how far a wall clock is off.
func wrongClock(rnd *rand.Rand) time.Duration {
	limit := pick(rnd, time.Millisecond, time.Millisecond, time.Second, time.Hour)
	return time.Duration(rnd.Int64N(2*int64(limit))) - limit
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

// String is the configuration on one line.
func (c Config) String() string {
	return fmt.Sprintf("seed %d: N=%d q=%d clients=%d×%d brief=%d names=%d ttl=%v..%v timeout=%v drift=%v latency=%v+%v hold=%v counteronly=%v wild=%v",
		c.Seed, c.Nodes, c.Quorum, c.Clients, c.Workers, c.Brief, c.Names, c.MinTTL, c.MaxTTL, c.NodeTimeout,
		c.Drift.Rate, c.Latency, c.Jitter, c.Hold, c.CounterOnly, c.Wild)
}

// Patience is how long after the heal every client must have had every name:
// until what the dead have left behind is over, which a refusal may cut to a
// MaxTTL once more; then everybody's turn, with the longest pauses between. And
// before all that, where a node was made to forget, its quarantine: those who live
// for a moment do not see all of it, and the end may be put off.
func (c Config) Patience(s Script) time.Duration {
	turns := time.Duration(c.Clients * c.Names * (c.Workers + 1))
	patience := 4*c.MaxTTL + c.Hold + turns*time.Second
	var longest time.Duration
	for _, f := range s {
		if loses, blank := f.loses(); loses || f.Verb == Step { // a node whose clock jumped sits out as well
			longest = max(longest, core.QuarantineTime(c.MaxTTL, c.Drift.Rate, !blank))
		}
	}
	if longest > 0 {
		patience += 3*longest/2 + core.MaxLiftTries*(watchQuarantineEvery+2*reportLimit)
	}
	return patience
}

// keyspace is where the locks live on the nodes.
var keyspace = node.Keyspace{Namespace: "redlock"}

// conf is what all clients tell the nodes.
func (c Config) conf() node.Conf {
	return node.Conf{
		Epoch: 1, Protocol: node.ProtocolVersion, N: c.Nodes, Q: c.Quorum,
		MaxTTL: c.MaxTTL.Milliseconds(), Members: "sim",
	}
}

// minTimeout is the shortest timeout of a node that nobody has configured.
const minTimeout = 20 * time.Millisecond

// timeout is how long to wait for one node.
func (c Config) timeout(ttl time.Duration) time.Duration {
	t := c.NodeTimeout
	if t == 0 {
		t = min(max(ttl/200, minTimeout), 250*time.Millisecond)
	}
	return max(min(t, ttl/4), time.Millisecond)
}

// lockNames are the names of locks. They count tokens in one shard, so that
// each finds the counters moved by the others.
var lockNames = sameShard(2)

func sameShard(n int) []string {
	names := []string{"x0"}
	for i := 1; len(names) < n; i++ {
		if name := fmt.Sprintf("x%d", i); node.Shard(name) == node.Shard(names[0]) {
			names = append(names, name)
		}
	}
	return names
}
