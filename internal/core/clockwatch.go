package core

import "time"

const (
	// clockStep is the largest movement of a node's clock that is let pass. The
	// validity of leases gives up as much (Drift.Margin).
	clockStep = stepAllowance
	// hostDrift is how far the clocks of two hosts run apart over long times that
	// nobody watched, as a fraction.
	hostDrift = 0.0005
	// lookedAtWithin is how often, and a little more, the clock of a node is read that
	// somebody uses, even if no operation needs it.
	lookedAtWithin = 15 * time.Second
	// goodReading is how sure a reading of a node's clock should be to be compared
	// with for a while.
	goodReading = 50 * time.Millisecond
	// surerWithin is how long a good reading may be replaced by a surer one.
	surerWithin = time.Second
)

// ClockWatch notices when the clock of a node moves: jumps, stands still, or runs
// at another rate than ours. What a node's clock shows does not matter, only that
// leases end when they should.
//
// A reading says that the node's clock showed some time between a send and the
// arrival of the answer, so the difference from our clock is known as an
// interval. Each is compared with one of the last MaxTTL.
type ClockWatch struct {
	window time.Duration
	rate   float64

	at     Instant // of the reading compared with; zero if there is none
	lo, hi time.Duration
	steady Instant // when the clock will have been steady for the window
}

// NewClockWatch returns a watch that trusts a clock again once it has been steady
// for window, which should be the longest lease. rate is by how much it may run
// faster or slower than ours.
func NewClockWatch(window time.Duration, rate float64) *ClockWatch {
	return &ClockWatch{window: window, rate: rate}
}

// Observe notes that the node's clock showed micros, in microseconds since 1970,
// at some time between sent and received. It returns by how much at least the
// clock has moved against ours since the reading before, zero if not by more than
// clocks may: positive if it leapt ahead, and leases have ended early.
func (w *ClockWatch) Observe(sent, received Instant, micros int64) time.Duration {
	r := ReadClock(sent, received, micros)
	lo, hi, age := r.Lo, r.Hi, received.Sub(w.at)
	allowed := mayMove(age, w.window, w.rate)
	moved := time.Duration(0)
	switch {
	case w.at == 0:
	case lo-w.hi > allowed:
		moved = lo - w.hi
	case w.lo-hi > allowed:
		moved = hi - w.lo
	case age < w.window && !w.surer(hi-lo, age), age < 2*w.window && hi-lo > goodReading && hi-lo > w.hi-w.lo:
		return 0
	}
	w.at, w.lo, w.hi = received, lo, hi
	if moved != 0 {
		w.steady = received.Add(w.window)
	}
	return moved
}

// ReadClock returns by how much a node's clock is ahead of ours that showed micros, in
// microseconds since 1970, at some time between sent and received.
func ReadClock(sent, received Instant, micros int64) ClockReading {
	shown := time.Duration(micros) * time.Microsecond
	return ClockReading{At: received, Lo: shown - received.Sub(0), Hi: shown - sent.Sub(0)}
}

// mayMove is how far two clocks may move apart within age.
func mayMove(age, window time.Duration, rate float64) time.Duration {
	watched := min(age, window+lookedAtWithin) // until a reading is replaced
	return clockStep + time.Duration(rate*float64(watched)) + time.Duration(hostDrift*float64(age-watched))
}

// surer reports whether a reading in doubt by that much is to take the place of the
// one compared with, although that is not old. Soon after it any much surer one is;
// later only if that was a bad one: else the comparison would follow a clock that
// runs fast.
func (w *ClockWatch) surer(doubt, age time.Duration) bool {
	had := w.hi - w.lo
	return 2*doubt < had && (age < surerWithin || had > goodReading)
}

// Suspect is how much longer, at now, the clock must not move for the node to be
// trusted again; zero if it is.
func (w *ClockWatch) Suspect(now Instant) time.Duration { return max(w.steady.Sub(now), 0) }

// Since is when the reading was taken that the next one is compared with, zero if
// there is none.
func (w *ClockWatch) Since() Instant { return w.at }

// Forget begins anew: the clock is another one, or it was ours that moved.
func (w *ClockWatch) Forget() { w.at, w.steady = 0, 0 }
