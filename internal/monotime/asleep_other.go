//go:build !linux

package monotime

import "time"

// timeAsleep compares the wall clock with the monotonic one: where no clock is
// known that counts while suspended, a wall clock that gained a lot is taken
// for a suspension. A wall clock that was set forward then ends leases early,
// which is the safe side.
func timeAsleep() func() time.Duration {
	const leastStep = time.Second
	start := time.Now()
	return func() time.Duration {
		now := time.Now()
		gained := now.Round(0).Sub(start.Round(0)) - now.Sub(start)
		if gained < leastStep {
			return 0
		}
		return gained
	}
}
