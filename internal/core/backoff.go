package core

import "time"

const (
	// minPause is the shortest base of a pause between attempts.
	minPause = time.Millisecond
	// maxPauseSplit caps the pause after an attempt that nobody won, or that
	// found no quorum: the name may be free.
	maxPauseSplit = 128 * time.Millisecond
	// maxPauseHeld caps the pause while one holder has a quorum. Four tries a
	// second on average, two operations each, stay below ten operations a
	// second and node however long the wait.
	maxPauseHeld = 512 * time.Millisecond
)

// Backoff is how long to pause after attempt number try (from 0) before the
// next one: full jitter, uniform up to a limit that doubles from the time the
// last round took. held tells that one holder has a quorum, and remaining how
// long it would last without renewal: the pause does not go past that by more
// than the last round took. rnd is a random number.
func Backoff(try int, lastRound time.Duration, held bool, remaining time.Duration, rnd uint64) time.Duration {
	limit := maxPauseSplit
	if held {
		limit = maxPauseHeld
	}
	base := max(minPause, lastRound)
	if try < 16 { // beyond, the shift alone is above every limit
		limit = min(limit, base<<try)
	}
	if held && remaining > 0 && remaining < limit {
		// Near its end the holder's lease is watched closely, but not by all
		// waiters at the same instant.
		return remaining + jitter(base, rnd)
	}
	return jitter(limit, rnd)
}

// jitter returns a duration in (0, d], uniform in rnd.
func jitter(d time.Duration, rnd uint64) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rnd%uint64(d)) + 1
}
