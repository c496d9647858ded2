package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// ClockRecord is what a node keeps of its clock for clients that have only just begun
// and know no difference of their own to compare with: by how much it was ahead of the
// reference, and when.
//
// The reference is a time line that clients carry on by these records. As long as no
// clock moves, each node's clock less its record gives the same time, whichever nodes
// answer. That is why the difference is kept: the median of the nodes' times is another
// one for other nodes, if their clocks are steadily apart.
type ClockRecord struct {
	Lo, Hi time.Duration // as sure as its reading was
	At     time.Duration // by the reference, since 1970; zero: there is no record
}

// String returns the form that nodes keep, in microseconds.
func (r ClockRecord) String() string {
	return fmt.Sprintf("%d %d %d", r.Lo.Microseconds(), r.Hi.Microseconds(), r.At.Microseconds())
}

// ParseClockRecord reads what String wrote. Anything else is no record.
func ParseClockRecord(text string) ClockRecord {
	var lo, hi, at int64
	if _, err := fmt.Sscanf(text, "%d %d %d", &lo, &hi, &at); err != nil || lo > hi {
		return ClockRecord{}
	}
	const µs = time.Microsecond
	r := ClockRecord{time.Duration(lo) * µs, time.Duration(hi) * µs, time.Duration(at) * µs}
	if r.String() != text {
		return ClockRecord{}
	}
	return r
}

// ClockReading is what a client has read of a node's clock: by how much it is ahead of
// the client's own.
type ClockReading struct {
	At     Instant // when; zero if the node was not heard of, or serves no leases
	Lo, Hi time.Duration
	Record ClockRecord
}

// ClockVerdict is what the clocks of the others say of one node's.
type ClockVerdict struct {
	// Suspect: it moved since its record was made, or may have; Moved by how much at
	// least against most others, positive if it leapt ahead.
	Suspect bool
	Moved   time.Duration
	// Record is what the node should keep from now on, if it has a time.
	Record ClockRecord
}

// CompareClocks compares the clocks of nodes, read at about the same time, by what the
// nodes have recorded of them. The median of what they give as the reference is right
// if more than half of them agree with it; those that do not have moved. If so many do
// not agree, nobody can tell which are right, and all are suspect. Without any record
// the median of the clocks is where the reference begins.
//
// rate is by how much a clock may run fast or slow, window how long a record lasts.
// Fewer nodes than a quorum tell nothing: nobody can take a lease with them either.
func CompareClocks(now Instant, readings []ClockReading, quorum int, window time.Duration, rate float64) []ClockVerdict {
	verdicts := make([]ClockVerdict, len(readings))
	heard, recorded := estimates(now, readings, window)
	if len(heard) < quorum {
		return verdicts
	}
	basis := recorded
	if len(recorded) == 0 {
		basis = heard
	}
	median, ok := medianOf(basis)
	if !ok {
		return verdicts
	}
	// One clock may run fast by the rate, and the other slow, which the age is told by.
	agree, drift := 0, 2*rate/(1-rate)
	for _, c := range recorded {
		moved := c.apart(median)
		if max(moved, -moved) > mayMove(max(c.age(median), median.age(median), 0), window, drift) {
			verdicts[c.node] = ClockVerdict{Suspect: true, Moved: moved}
		} else {
			agree++
		}
	}
	if len(recorded) > 0 && 2*agree <= len(recorded) {
		for _, c := range recorded {
			verdicts[c.node] = ClockVerdict{Suspect: true, Moved: c.apart(median)}
		}
		return verdicts
	}
	for _, c := range heard {
		if v := &verdicts[c.node]; !v.Suspect && c.reading.wantsRecord(c.age(median), window) {
			v.Record = c.reading.record(median.middle())
		}
	}
	return verdicts
}

// estimate is by how much the reference is ahead of our own clock, by the clock and the
// record of one node.
type estimate struct {
	node    int
	reading ClockReading
	lo, hi  time.Duration
}

// estimates returns what the clocks that were read lately give, and those of them of
// which there are records.
func estimates(now Instant, readings []ClockReading, window time.Duration) (heard, recorded []estimate) {
	for i, r := range readings {
		if r.At == 0 || now.Sub(r.At) > window {
			continue
		}
		c := estimate{i, r, r.Lo - r.Record.Hi, r.Hi - r.Record.Lo}
		heard = append(heard, c)
		if r.Record.At != 0 {
			recorded = append(recorded, c)
		}
	}
	return heard, recorded
}

// medianOf returns the median of those that are sure enough, the lower one of two, and
// false if none is: what agrees with everything tells nothing.
func medianOf(all []estimate) (estimate, bool) {
	sure := slices.DeleteFunc(slices.Clone(all), func(e estimate) bool { return e.hi-e.lo > 2*clockStep })
	if len(sure) == 0 {
		return estimate{}, false
	}
	slices.SortFunc(sure, func(a, b estimate) int { return cmp.Compare(a.middle(), b.middle()) })
	return sure[(len(sure)-1)/2], true
}

func (c estimate) middle() time.Duration { return c.lo + (c.hi-c.lo)/2 }

// apart is by how much at least c is ahead of o, or behind it.
func (c estimate) apart(o estimate) time.Duration {
	switch {
	case c.lo > o.hi:
		return c.lo - o.hi
	case c.hi < o.lo:
		return c.hi - o.lo
	}
	return 0
}

// age is how old the record of c is by the reference of o. It is negative if that has
// gone back since, because the clocks of most did, together.
func (c estimate) age(o estimate) time.Duration {
	return o.middle() + c.reading.At.Sub(0) - c.reading.Record.At
}

// wantsRecord reports whether another record is to be made. One that is not old is
// replaced only by a much surer one, if it was a bad one: else it would follow a clock
// that runs fast. The rule of ClockWatch.
func (r ClockReading) wantsRecord(age, window time.Duration) bool {
	had, doubt := r.Record.Hi-r.Record.Lo, r.Hi-r.Lo
	switch {
	case doubt > clockStep:
		return false
	case r.Record.At == 0 || age < -window: // or it would be none too old for as long as they went back
		return true
	case age <= window:
		return 2*doubt < had && had > goodReading
	}
	return doubt <= max(had, goodReading) || age >= 2*window
}

// record returns the record of a clock, given the difference of the reference from our
// own clock.
func (r ClockReading) record(reference time.Duration) ClockRecord {
	return ClockRecord{Lo: r.Lo - reference, Hi: r.Hi - reference, At: reference + r.At.Sub(0)}
}
