package core

import "time"

const (
	// leastUnknown is the longest lease that a node may have forgotten together
	// with the configuration that bounded it, as far as is assumed.
	leastUnknown = 30 * time.Second
	// clockFloor is how far above its own clock a node begins to count that has
	// lost its counters, when too few others can tell it where: by so much
	// proposals may lead the clock that bounds them.
	clockFloor = 250 * time.Millisecond
)

// QuarantineTime is how long a node that may have forgotten leases must not
// vote: the "delayed restart" of the Redis documentation ("Distributed Locks with
// Redis"). Until then the longest lease is over, on a clock that runs slower by
// the drift rate, and with it every attempt that still counted on the node: those
// take half of a lease at most. known tells that maxTTL was what bounded the
// leases; if the configuration was lost as well, it is an assumption.
func QuarantineTime(maxTTL time.Duration, rate float64, known bool) time.Duration {
	if !known {
		maxTTL = max(maxTTL, leastUnknown)
	}
	return maxTTL + time.Duration(float64(maxTTL)*rate) + maxTTL/2
}

// Quarantine is one client's view of a node that does not vote: how long, as far
// as it knows, that has lasted at least.
//
// It is counted by credit. A node tells the credit that clients have claimed; a
// client that received c, and has watched for d since, knows that c + d have
// passed, whoever else claims what. The node keeps the largest claim. So credit
// never exceeds the true time, no wall clock is trusted, and many clients that
// each look for a moment add up.
type Quarantine struct {
	need   time.Duration
	credit time.Duration
	since  Instant // when credit was known
	tries  int     // to lift it
}

// NewQuarantine returns a quarantine that has to last need.
func NewQuarantine(need time.Duration) *Quarantine { return &Quarantine{need: need} }

// Require sets how long it has to last.
func (q *Quarantine) Require(need time.Duration) { q.need = need }

// Saw notes, at now, the credit that the node has. The instants must be those of
// a clock that stands still while the machine is suspended: a leap of it would
// be a claim of time that nobody has seen pass.
func (q *Quarantine) Saw(now Instant, credit time.Duration) {
	if q.since == 0 || credit > q.Credit(now) {
		q.credit, q.since = credit, now
	}
}

// Credit is what the client may claim.
func (q *Quarantine) Credit(now Instant) time.Duration { return q.credit + now.Sub(q.since) }

// Left is how much longer the node will not vote.
func (q *Quarantine) Left(now Instant) time.Duration { return max(q.need-q.Credit(now), 0) }

// Need is how long it has to last.
func (q *Quarantine) Need() time.Duration { return q.need }

// MaxLiftTries is how often the end of a quarantine is put off because a node
// that should be able to tell its counters does not answer.
const MaxLiftTries = 3

// Lift says what becomes of a quarantine that has lasted long enough.
type Lift uint8

// The decisions about the end of a quarantine.
const (
	// LiftNow: the node may vote.
	LiftNow Lift = 1 + iota
	// PutOff: another try may know the floor from counters.
	PutOff
	// LeaveToOthers: who sees more nodes than we do can do better.
	LeaveToOthers
	// KeepUp: too few nodes can tell the floor, and it must not rest on a clock.
	KeepUp
)

// Lift decides, with the reports of the other nodes, whether the node may count on
// from its floor. If that is not sure, it rests on the node's clock: the end is then
// put off while fewer nodes report that they vote than should be able to, as far as
// is known, unless no clock may decide anyway: counterOnly.
//
// Only a client that sees a quorum, this node included, gains a vote by a floor that
// rests on a clock; to any other the rest may just be out of reach, and whoever
// reaches them can do better.
func (q *Quarantine) Lift(sure, counterOnly bool, quorum int, others []TokenReport, should int) Lift {
	switch {
	case sure:
		return LiftNow
	case 1+count(others, func(r TokenReport) bool { return r.Ours }) < quorum:
		return LeaveToOthers
	case counterOnly:
		return KeepUp
	case Voting(others) >= should:
		return LiftNow
	}
	q.tries++
	if q.tries < MaxLiftTries {
		return PutOff
	}
	return LiftNow
}

// TokenReport is what a node says of the numbers that it has given out. The zero
// value is that of a node which did not answer, or is unfit.
type TokenReport struct {
	// Ours tells that the node has our configuration, or none; Foreign that it has
	// another, or is fenced.
	Ours, Foreign bool
	// Voting tells that the node votes: its counters have forgotten nothing.
	Voting bool
	// Highest is the largest number, under any name.
	Highest uint64
	// ByClock tells that the counters began, after a loss, at the node's clock.
	ByClock bool
}

// Voting is how many of those that report vote.
func Voting(reports []TokenReport) int {
	return count(reports, func(r TokenReport) bool { return r.Voting })
}

// Floor returns the number that a node of n which has lost its counters must
// stay above, given what others say after the quarantine has lasted long enough,
// and the node's own clock in microseconds.
//
// A token was witnessed by a quorum, so by quorum - 1 nodes at least besides this
// one; of n - 1 others those and n - quorum + 1 that report have one in common.
// If fewer can report, it is not sure: the floor rests on the node's clock, and so
// does the order of tokens: byClock. That is so as well if one of those that report
// once began at its clock.
func Floor(n, quorum int, others []TokenReport, clock int64) (floor uint64, sure, byClock bool) {
	for _, r := range others {
		floor = max(floor, r.Highest)
		byClock = byClock || r.Voting && r.ByClock
	}
	if Voting(others) < n-quorum+1 {
		return max(floor, uint64(max(clock, 0))+uint64(clockFloor.Microseconds())), false, true
	}
	return floor, true, byClock
}

// Foreign reports whether a node has another configuration than ours, or is fenced.
// Nobody can tell then which configuration a blank node has lost, or whether it was
// fenced, so it is not to be given any.
func Foreign(others []TokenReport) bool {
	return count(others, func(r TokenReport) bool { return r.Foreign }) > 0
}

func count(reports []TokenReport, is func(TokenReport) bool) int {
	n := 0
	for _, r := range reports {
		if is(r) {
			n++
		}
	}
	return n
}
