//go:build race

package explore

// slow: one goroutine has no races, and the detector takes ten times as long.
const slow = true
