//go:build race

package redlock_test

// manyCallers is how many callers a crowd has. The race detector itself dies now and then
// of twice ten thousand goroutines and their timers.
const manyCallers = 2_000
