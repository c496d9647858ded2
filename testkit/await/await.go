// Package await waits for a condition in a test, in place of a guessed sleep.
package await

import (
	"testing"
	"time"
)

// The pause between two looks starts short, for conditions that are nearly
// true, and grows so that a slow one does not eat the processor it waits for.
const (
	firstPause = 100 * time.Microsecond
	longPause  = 20 * time.Millisecond
)

// True returns as soon as cond is true. It fails the test at once, saying what
// was awaited, when cond is still false after within. Call it from the test's
// own goroutine only.
func True(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for pause := firstPause; !cond(); pause = min(2*pause, longPause) {
		left := time.Until(deadline)
		if left <= 0 {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(min(pause, left))
	}
}
