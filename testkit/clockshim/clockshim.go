// Package clockshim gives a process that a test starts, such as a
// redis-server, a wall clock that the test can move, bend and stop while the
// process runs. No other process notices.
//
// A small library is loaded into the process before all others and answers in
// place of gettimeofday, time and clock_gettime (preload/clockshim.c, compiled
// here). It works on Linux, on programs that are linked dynamically. The clock
// for intervals, CLOCK_MONOTONIC, stays true, as it does when an operator or
// NTP sets the time of a machine.
//
// # What a server makes of it
//
// This is so of redis-server 7.0, and the tests would notice if it were not.
//
//   - TIME asks the clock each time, in a script too: two TIMEs in one script
//     differ, and may lie on both sides of a jump.
//   - Whether a key has expired is decided by a time that the server keeps in
//     memory and renews before each command of a client. So the first command
//     after a jump already goes by it, but a script goes to its end by the time
//     at which it began: a key does not expire under it, whatever TIME says,
//     and a PX that it sets counts from the TIME at which it does.
//   - Its event loop and the limit on the running time of scripts go by
//     CLOCK_MONOTONIC: a server whose clock stands still serves its clients all
//     the same, and says BUSY in time.
//   - By the time of day, and so by this clock, go uptime_in_seconds in INFO,
//     the timeout of BLPOP and the like and, unless the server was built to read
//     the processor's own counter, what SLOWLOG takes for the duration of a
//     command.
//   - The allocator's background threads sleep in the kernel until a time of day
//     that they take from this clock. They would spin while it is behind, so
//     that redisserver turns them off.
//
// Reading the time takes a system call here, where a process has it from its
// own memory otherwise: a command takes about a microsecond longer.
package clockshim

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNotInstalled: there is no C compiler on PATH.
var ErrNotInstalled = errors.New("clockshim: neither cc nor gcc is on PATH")

// Clock is the wall clock of the processes that were started with its Env. Its
// methods may be called from any goroutine.
type Clock struct {
	env []string

	mu      sync.Mutex
	control *control
	rate    float64 // while not frozen
	frozen  bool
}

// control is struct control of preload/clockshim.c, which says what it means.
type control struct {
	seq   atomic.Uint64
	loads atomic.Uint64
	mono  atomic.Int64
	fake  atomic.Int64
	rate  atomic.Uint64 // the bits of a float64
}

// New returns a clock that shows the true time and runs as fast. It keeps its
// files in a new directory within dir, which has to outlive the processes that
// use the clock. Without a C compiler the error is ErrNotInstalled, on systems
// other than Linux it is errors.ErrUnsupported.
func New(dir string) (*Clock, error) {
	c, err := newClock(dir)
	if err != nil {
		return nil, fmt.Errorf("clockshim: new clock: %w", err)
	}
	return c, nil
}

func newClock(dir string) (*Clock, error) {
	library, err := library()
	if err != nil {
		return nil, err
	}
	// A server may change its working directory.
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "clock-"); err != nil {
		return nil, err
	}
	preload := filepath.Join(dir, "clockshim.so")
	if strings.ContainsAny(preload, ": ") {
		return nil, fmt.Errorf("LD_PRELOAD cannot hold a path with colons or spaces: %q", preload)
	}
	if err := os.WriteFile(preload, library, 0o600); err != nil {
		return nil, err
	}
	if others := os.Getenv("LD_PRELOAD"); others != "" {
		preload += ":" + others
	}
	file := filepath.Join(dir, "control")
	c := &Clock{env: []string{"LD_PRELOAD=" + preload, "REDLOCK_CLOCK=" + file}, rate: 1}
	if err := c.open(file); err != nil {
		return nil, err
	}
	c.control.mono.Store(monotonic())
	c.control.fake.Store(time.Now().UnixNano())
	c.control.rate.Store(math.Float64bits(c.rate))
	return c, nil
}

// Env returns what goes into the environment of a process so that it reads
// this clock. Several processes may read the same one.
func (c *Clock) Env() []string { return c.env }

// Loads counts the processes that have been started with the clock, and took
// it. A program that is linked statically, for one, does not.
func (c *Clock) Loads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.control.loads.Load())
}

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Unix(0, c.at(monotonic()))
}

// Jump moves the clock by d at once, back if d is negative. Frozen, it stays
// frozen.
func (c *Clock) Jump(d time.Duration) {
	c.set(func() time.Duration { return d })
}

// Rate lets the clock go on from where it is, rate times as fast as true time:
// 1.08 gains eight seconds in a hundred. It panics if rate is negative or not
// a number. Frozen, the clock runs at the new rate once it is thawed.
func (c *Clock) Rate(rate float64) {
	if !(rate >= 0 && rate <= math.MaxFloat32) {
		panic(fmt.Sprintf("clockshim: rate %v", rate))
	}
	c.set(func() time.Duration { c.rate = rate; return 0 })
}

// Freeze lets the clock stand still.
func (c *Clock) Freeze() {
	c.set(func() time.Duration { c.frozen = true; return 0 })
}

// Thaw lets a frozen clock go on from where it stood, at its rate.
func (c *Clock) Thaw() {
	c.set(func() time.Duration { c.frozen = false; return 0 })
}

// set makes a change and moves the clock by what change returns. The true time
// is read while seq is odd, when nobody else reads the clock: what the old
// setting showed until then is where the new one begins.
func (c *Clock) set(change func() (jump time.Duration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	jump := change()
	rate := c.rate
	if c.frozen {
		rate = 0
	}

	c.control.seq.Add(1)
	mono := monotonic()
	c.control.fake.Store(c.at(mono) + int64(jump))
	c.control.mono.Store(mono)
	c.control.rate.Store(math.Float64bits(rate))
	c.control.seq.Add(1)
}

// at returns the time on the clock, in ns since 1970, when the true monotonic
// clock shows mono. It calculates as the library does, to the last bit.
func (c *Clock) at(mono int64) int64 {
	elapsed := mono - c.control.mono.Load()
	return c.control.fake.Load() + int64(float64(elapsed)*math.Float64frombits(c.control.rate.Load()))
}
