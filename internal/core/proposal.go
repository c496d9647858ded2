package core

import "example.com/redlock/fence"

// Proposer makes the numbers that attempts propose as tokens: a hybrid clock in
// microseconds, after Lamport's logical clocks (1978). Each is larger than the
// one before and than any number seen on a node, and close to the wall clock
// while that is right, so that the proposals of many clients come in the order
// of their attempts and most rounds agree at once.
type Proposer struct {
	last uint64
}

// Next returns the next proposal, given the wall clock in microseconds.
func (p *Proposer) Next(wall int64) uint64 {
	p.last = min(max(uint64(max(wall, 1)), p.last+1), uint64(fence.MaxToken)-1)
	return p.last
}

// Last is the largest number proposed or seen.
func (p *Proposer) Last() uint64 { return p.last }

// Saw notes a number that a node has given out.
func (p *Proposer) Saw(n uint64) { p.last = max(p.last, n) }

// NodeClock estimates the clock of one node from its replies.
type NodeClock struct {
	// What the node's clock read at some time after sent; zero if unknown.
	micros int64
	sent   Instant
}

// driftAllowance is how much faster a node's clock is taken to run than ours
// since it was last read. Clocks that are being slewed differ by less.
const driftAllowance = 0.1

// Observe notes that a node's clock read micros at some time after sent.
func (c *NodeClock) Observe(sent Instant, micros int64) { c.sent, c.micros = sent, micros }

// Latest returns the latest that the node's clock can show at an instant, in
// microseconds, and 0 if nothing is known. It errs on the late side, by one
// round trip and a tenth of the time since the clock was read.
func (c *NodeClock) Latest(at Instant) int64 {
	if c.micros == 0 {
		return 0
	}
	passed := at.Sub(c.sent)
	return c.micros + passed.Microseconds() + int64(float64(passed.Microseconds())*driftAllowance) + 1
}
