package sim

import (
	"time"

	"example.com/redlock/internal/core"
)

// smallStep is the longest jump of a clock that leases allow for.
func smallStep(c Config) time.Duration { return min(250*time.Millisecond, c.MinTTL/20) }

// stepApart is how far apart the jumps of one clock must be so that no lease
// suffers two.
func stepApart(c Config) time.Duration { return 2 * c.MaxTTL }

// Broken returns what in a script leases cannot bear, or "": with such a fault
// two clients may believe to hold one name.
func Broken(c Config, s Script) string {
	if i := unbearable(c, s); i >= 0 {
		return s[i].String()
	}
	return ""
}

// unbearable returns the first fault in a script that leases cannot bear, -1 if
// there is none. What a node forgets is none: that is what quarantine is for.
func unbearable(c Config, s Script) int {
	e := endurance{
		Config: c, blankUntil: make([]time.Duration, c.Nodes), stepped: make([]time.Duration, c.Nodes),
	}
	for i := range e.stepped {
		e.stepped[i] = -stepApart(c)
	}
	for i, f := range s {
		if !e.bears(f) {
			return i
		}
	}
	return -1
}

// endurance is what has struck so far.
type endurance struct {
	Config
	// blankUntil is until when a node certainly has no lease on it, stepped when its
	// clock last jumped.
	blankUntil, stepped []time.Duration
	jumps               []Fault // beyond what is allowed for, one node each
}

func (e *endurance) bears(f Fault) bool {
	switch {
	case f.Verb == Free:
		return false
	case f.Verb == Rate:
		return max(f.Much, -f.Much) <= e.Drift.Rate
	case f.To.Kind != 'n':
		return true
	}
	loses, blank := f.loses()
	for i := range e.Nodes {
		switch {
		case !f.To.is(i):
		case blank:
			e.blankUntil[i] = f.At + core.QuarantineTime(e.MaxTTL, e.Drift.Rate, false)
		case loses && f.Verb != Restart:
			e.blankUntil[i] = 0 // its old data is back
		case f.Verb == Step && f.At >= e.blankUntil[i] && !e.bearsStep(i, f):
			return false
		}
	}
	return true
}

// bearsStep reports whether node i's clock may jump. It may not have leases expire
// early on so many nodes at a time that what is left of their quorum does not
// intersect every other.
func (e *endurance) bearsStep(i int, f Fault) bool {
	small := max(f.For, -f.For) <= smallStep(e.Config) && f.At-e.stepped[i] >= stepApart(e.Config)
	e.stepped[i] = f.At
	if small {
		return true
	}
	e.jumps = append(e.jumps, Fault{At: f.At, To: End{'n', i}})
	lately := map[int]bool{}
	for _, j := range e.jumps {
		if f.At-j.At < stepApart(e.Config) {
			lately[j.To.Index] = true
		}
	}
	return len(lately) < 2*e.Quorum-e.Nodes
}

// ClocksAgree reports whether the clocks of all nodes are so nearly right
// throughout that tokens which rest on them come in order: a node that began to
// count at its clock had been away for longer than they differ.
func ClocksAgree(c Config, s Script) bool {
	var most time.Duration
	for i, offset := range c.NodeOffset {
		off, rate := max(offset, -offset), 0.0
		for _, f := range s {
			if f.To.Kind == 'n' && f.To.is(i) {
				switch f.Verb {
				case Step:
					off += max(f.For, -f.For)
				case Rate:
					rate = max(rate, f.Much, -f.Much)
				}
			}
		}
		most = max(most, off+time.Duration(rate*float64(c.Turmoil+c.Patience(s))))
	}
	return 2*most < c.MaxTTL
}
