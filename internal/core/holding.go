package core

import (
	"slices"
	"time"
)

// Drift is what a lease gives up for clocks that do not run alike.
type Drift struct {
	// Rate is how much faster a node's clock may run, as a fraction.
	Rate float64
	// Floor covers the granularity of expiry on the nodes.
	Floor time.Duration
}

// stepAllowance is the largest step of a node's clock that goes unnoticed.
const stepAllowance = 250 * time.Millisecond

// Margin is how much earlier than on the nodes a lease of ttl ends for its
// holder: MIN_VALIDITY = TTL - elapsed - CLOCK_DRIFT of the Redis documentation
// ("Distributed Locks with Redis"), and beyond it the step of a node's clock
// that is too small to be noticed.
func (d Drift) Margin(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*d.Rate) + d.Floor + min(stepAllowance, ttl/20)
}

// Holding is a lease as its holder knows it, node by node. One rule gives its
// validity, for acquire, extension, join and late grants alike: the q-th newest
// among the nodes' last acknowledged send times, each with its lease time, less
// the margin for that.
//
// Counting from the send and not from the answer follows Gray and Cheriton,
// "Leases" (1989): the node starts its clock after the send, so the holder's
// term ends first.
type Holding struct {
	quorum  int
	drift   Drift
	members []member
	until   Instant // end of the validity; zero before a quorum has granted
	lost    bool
}

type member struct {
	// held tells that the node has the lease, as far as is known.
	held bool
	// broken tells that the node refuses extensions. It still blocks rivals
	// until the lease ends there.
	broken bool
	// until is the send time of the last acknowledged operation plus its lease
	// time, less the margin. Zero while the node does not count.
	until Instant
	// heard is when the newest extension or join that it answered was sent.
	heard Instant
	// ends is the earliest that the lease can end there by itself, also while the
	// node does not count.
	ends Instant
}

// NewHolding returns a lease over n nodes that none has granted yet.
func NewHolding(n, quorum int, d Drift) Holding {
	return Holding{quorum: quorum, drift: d, members: make([]member, n)}
}

// Ack notes, at now, that a node acknowledged a grant or an extension sent at
// sent with a lease time of ttl. What is acknowledged after the validity has
// passed counts for nothing: a rival may have held the lease in between.
func (h *Holding) Ack(now Instant, node int, sent Instant, ttl time.Duration) {
	m := &h.members[node]
	m.held, m.ends = true, max(m.ends, sent.Add(ttl))
	if h.Lost(now) {
		return
	}
	m.until = max(m.until, sent.Add(ttl-h.drift.Margin(ttl)))
	h.until = max(h.until, h.computed())
}

// Join notes that a node has stored the lease later than the others. It counts
// from its next acknowledged extension on: until then only the quorum that
// extended proves that nobody held in between. ends is the earliest that it can
// end there by itself.
func (h *Holding) Join(node int, ends Instant) {
	h.members[node].held, h.members[node].ends = true, ends
}

// News notes that a node has answered an extension or a join sent at sent, and
// reports whether that tells anything: an answer that was overtaken on its way back
// does not, what is known of the node is newer.
func (h *Holding) News(node int, sent Instant) bool {
	m := &h.members[node]
	if sent < m.heard {
		return false
	}
	m.heard = sent
	return true
}

// Vanish notes that a node no longer has the lease. The validity falls back to
// what the remaining nodes give: the node may already vote for a rival. It reports
// whether that was early: where a node was not to be reached for long, or had no
// vote, a lease ends in its time.
func (h *Holding) Vanish(now Instant, node int) (early bool) {
	m := h.members[node]
	early = now < m.ends
	h.members[node] = member{heard: m.heard}
	if h.until != 0 {
		h.until = min(h.until, h.computed())
		h.lost = h.lost || h.until <= now
	}
	return early
}

// Break notes that a node refuses extensions from now on.
func (h *Holding) Break(node int) { h.members[node].broken = true }

// Held reports whether a node has the lease, as far as is known.
func (h *Holding) Held(node int) bool { return h.members[node].held }

// HeldCount is how many nodes have the lease, as far as is known.
func (h *Holding) HeldCount() int {
	count := 0
	for _, m := range h.members {
		if m.held {
			count++
		}
	}
	return count
}

// doomed reports whether a quorum can never be extended again, because too
// many nodes refuse.
func (h *Holding) doomed() bool {
	broken := 0
	for _, m := range h.members {
		if m.broken {
			broken++
		}
	}
	return len(h.members)-broken < h.quorum
}

// Until is the end of the validity, zero before a quorum has granted.
func (h *Holding) Until() Instant { return h.until }

// Lost reports whether the validity has passed. Once it has, it has for good.
func (h *Holding) Lost(now Instant) bool {
	if h.until != 0 && now >= h.until {
		h.lost = true
	}
	return h.lost
}

// Ending says why a lease can no longer be held.
type Ending uint8

// The endings of a lease. Zero is none.
const (
	// Forgotten: fewer nodes than a quorum still have it.
	Forgotten Ending = 1 + iota
	// Passed: its validity has.
	Passed
	// Broken: so many nodes refuse that a quorum can never be extended again. The
	// holder learns of it while its validity lasts.
	Broken
)

// Ending returns why the lease can no longer be held at now, or zero.
func (h *Holding) Ending(now Instant) Ending {
	switch {
	case h.Lost(now) && h.HeldCount() < h.quorum:
		return Forgotten
	case h.Lost(now):
		return Passed
	case h.doomed():
		return Broken
	}
	return 0
}

// computed applies the rule to what the members have acknowledged.
func (h *Holding) computed() Instant {
	ends := make([]Instant, 0, 16)
	for _, m := range h.members {
		if m.held && m.until != 0 {
			ends = append(ends, m.until)
		}
	}
	if len(ends) < h.quorum {
		return 0
	}
	slices.Sort(ends)
	return ends[len(ends)-h.quorum]
}
