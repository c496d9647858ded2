package monotime

import (
	"time"

	"golang.org/x/sys/unix"
)

// timeAsleep compares CLOCK_BOOTTIME, which counts while the machine is
// suspended, with CLOCK_MONOTONIC, which does not. Neither is moved by whoever
// sets the wall clock.
func timeAsleep() func() time.Duration {
	return func() time.Duration {
		var boot, mono unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
			return 0
		}
		return time.Duration(boot.Nano() - mono.Nano())
	}
}
