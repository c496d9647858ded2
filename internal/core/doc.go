// Package core decides; it never does. What an attempt over N nodes comes to,
// how long a lease is valid, which token it bears, when it is renewed and how
// long a loser waits are computed here, from events and times that the caller
// passes in. The package has no clock, no goroutine, no randomness and no I/O:
// its results are verdicts and effects for the caller to carry out.
package core

import "time"

// Instant is a point on the caller's own monotonic clock, in nanoseconds.
// Zero means never.
type Instant int64

// Add returns i moved by d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns how long i is after j.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Majority is the least quorum of n nodes: any two quorums share a node.
func Majority(n int) int { return n/2 + 1 }

// Verdict is what a round, or a renewal, has come to.
type Verdict uint8

// The verdicts.
const (
	// Pending: answers that are still outstanding could change the outcome.
	Pending Verdict = 1 + iota
	// Won: a quorum agreed, in time.
	Won
	// Lost: a quorum cannot agree any more, or not in time.
	Lost
)

// String returns the verdict's name.
func (v Verdict) String() string {
	switch v {
	case Pending:
		return "pending"
	case Won:
		return "won"
	case Lost:
		return "lost"
	}
	return "invalid"
}
