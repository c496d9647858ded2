//go:build !race

package redlock_test

// manyCallers is how many callers a crowd has.
const manyCallers = 10_000
