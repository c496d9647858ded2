//go:build race

package sim

// raceFactor divides the number of seeds: the race detector takes its time,
// and finds nothing in runs of one goroutine.
const raceFactor = 20
