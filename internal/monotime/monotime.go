// Package monotime is the clock that leases are measured with: it only goes
// forward, and unlike the monotonic reading of package time it goes on while
// the machine is suspended.
package monotime

import (
	"sync/atomic"
	"time"

	"example.com/redlock/internal/core"
)

// Clock measures the time since it was made. Make it with New.
type Clock struct {
	base      time.Time
	asleep    func() time.Duration // time spent suspended since some start
	asleepAt0 time.Duration
	slept     atomic.Int64 // what Check has seen of it, in nanoseconds
	skipped   atomic.Int64 // by Skip, in nanoseconds
}

// leastSleep is the least time asleep that is told from the noise of reading
// two clocks one after the other, or of a wall clock being slewed.
const leastSleep = 100 * time.Millisecond

// New returns a clock that starts now.
func New() *Clock { return NewAsleep(timeAsleep()) }

// NewAsleep returns a clock that starts now on a machine that says itself how
// long it has been asleep, for tests.
func NewAsleep(asleep func() time.Duration) *Clock {
	return &Clock{base: time.Now(), asleep: asleep, asleepAt0: asleep()}
}

// Awake returns the time on the clock without what the machine spent suspended,
// which on some systems only the wall clock tells.
func (c *Clock) Awake() core.Instant { return core.Instant(time.Since(c.base)) + 1 }

// Skip moves the clock on by d, which is known to have passed unnoticed.
func (c *Clock) Skip(d time.Duration) { c.skipped.Add(int64(d)) }

// Now returns the time on the clock. It is never zero. It knows of time asleep
// only what Check has seen.
func (c *Clock) Now() core.Instant {
	return core.Instant(time.Since(c.base)+c.unseen()) + 1
}

// unseen is how much of the time the timers of this process have not seen pass.
func (c *Clock) unseen() time.Duration { return time.Duration(c.slept.Load() + c.skipped.Load()) }

// Time returns when the clock shows t, if it does not move on by itself until
// then: a time with a monotonic reading.
func (c *Clock) Time(t core.Instant) time.Time {
	return c.base.Add(time.Duration(t-1) - c.unseen())
}

// Check looks whether the machine was suspended since the last Check, moves the
// clock forward by as much, and returns it.
func (c *Clock) Check() time.Duration {
	for {
		seen := c.slept.Load()
		more := c.asleep() - c.asleepAt0 - time.Duration(seen)
		if more < leastSleep {
			return 0
		}
		if c.slept.CompareAndSwap(seen, seen+int64(more)) {
			return more
		}
	}
}
