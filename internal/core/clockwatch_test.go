package core

import (
	"testing"
	"time"
)

// clockAt is what a node's clock shows that is ahead of ours by off.
func clockAt(now Instant, off time.Duration) int64 {
	return 1_785_000_000_000_000 + now.Add(off).Sub(0).Microseconds()
}

func TestClockWatch(t *testing.T) {
	const window = 30 * time.Second
	for name, test := range map[string]struct {
		// off is by how much the node's clock is ahead after a time on ours.
		off func(at time.Duration) time.Duration
		// noticed is when the first movement is; zero for never.
		noticed time.Duration
		ahead   bool
		// trusted is when the clock is trusted again; zero for not within the test.
		trusted time.Duration
	}{
		"steady":              {off: func(time.Duration) time.Duration { return time.Hour }},
		"half a percent fast": {off: func(at time.Duration) time.Duration { return at / 200 }},
		"a small step": {off: func(at time.Duration) time.Duration {
			if at < 10*time.Second {
				return 0
			}
			return 240 * time.Millisecond
		}},
		"a step ahead": {
			off: func(at time.Duration) time.Duration {
				if at < 100*time.Second {
					return 0
				}
				return time.Second
			},
			noticed: 100 * time.Second, ahead: true, trusted: 130 * time.Second,
		},
		"a step back": {
			off: func(at time.Duration) time.Duration {
				if at < 10*time.Second {
					return 0
				}
				return -time.Hour
			},
			noticed: 10 * time.Second, trusted: 40 * time.Second,
		},
		"there and back": {
			off: func(at time.Duration) time.Duration {
				if at >= 10*time.Second && at < 15*time.Second {
					return time.Minute
				}
				return 0
			},
			noticed: 10 * time.Second, ahead: true, trusted: 45 * time.Second,
		},
		// 8 % less the 1 % that is allowed make 250 ms and the doubt of the
		// readings in 3.6 seconds.
		"8 % fast":       {off: func(at time.Duration) time.Duration { return at * 8 / 100 }, noticed: 3600 * time.Millisecond, ahead: true},
		"standing still": {off: func(at time.Duration) time.Duration { return -at }, noticed: 250 * time.Millisecond},
	} {
		w := NewClockWatch(window, 0.01)
		var noticed, trusted time.Duration
		for at := time.Duration(0); at < 200*time.Second; at += 100 * time.Millisecond {
			sent := Instant(1).Add(at)
			received := sent.Add(2 * time.Millisecond)
			moved := w.Observe(sent, received, clockAt(sent.Add(time.Millisecond), test.off(at)))
			if moved != 0 && noticed == 0 {
				noticed = at
				if (moved > 0) != test.ahead {
					t.Errorf("%s: moved by %v", name, moved)
				}
			}
			if noticed != 0 && trusted == 0 && w.Suspect(received) == 0 {
				trusted = at
			}
		}
		const slack = 200 * time.Millisecond
		if d := noticed - test.noticed; d < 0 || d > slack || (noticed == 0) != (test.noticed == 0) {
			t.Errorf("%s: noticed after %v, want %v", name, noticed, test.noticed)
		}
		if d := trusted - test.trusted; d < 0 || d > slack || (trusted == 0) != (test.trusted == 0) {
			t.Errorf("%s: trusted after %v, want %v", name, trusted, test.trusted)
		}
	}
}

// A surer reading takes the place of the one compared with when that was a bad one, or
// is new; of a good one later it does not, or a clock that runs fast would be followed.
func TestClockWatchSurerReadings(t *testing.T) {
	const ms = time.Millisecond
	type reading struct{ at, took, off time.Duration }
	fast := []reading{{0, 48 * ms, 0}}
	for took := 20 * ms; took > ms; took /= 3 {
		at := fast[len(fast)-1].at + 3*time.Second
		fast = append(fast, reading{at, took, at * 8 / 100})
	}
	for name, readings := range map[string][]reading{
		"8 % fast":            fast,
		"the first was bad":   {{0, 400 * ms, 0}, {2 * time.Second, 2 * ms, 0}, {3 * time.Second, 2 * ms, 300 * ms}},
		"the first was so-so": {{0, 40 * ms, 0}, {500 * ms, 2 * ms, 0}, {2 * time.Second, 2 * ms, 285 * ms}},
	} {
		w := NewClockWatch(30*time.Second, 0.01)
		moved := false
		for _, r := range readings {
			received := Instant(1).Add(r.at)
			moved = w.Observe(received.Add(-r.took), received, clockAt(received, r.off)) > 0 || moved
		}
		if !moved {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// What stood in a queue, here or there, is no movement; nor is the drift of a day
// without a reading.
func TestClockWatchDoubt(t *testing.T) {
	w := NewClockWatch(30*time.Second, 0.01)
	now := Instant(1)
	for _, took := range []time.Duration{time.Millisecond, 10 * time.Second, time.Millisecond, 40 * time.Second, time.Millisecond} {
		for _, read := range []time.Duration{0, took} { // when the node read its clock
			received := now.Add(took)
			if moved := w.Observe(now, received, clockAt(now.Add(read), 0)); moved != 0 {
				t.Errorf("an answer that took %v: moved by %v", took, moved)
			}
			now = received
		}
	}
	now = now.Add(24 * time.Hour)
	if moved := w.Observe(now, now.Add(time.Millisecond), clockAt(now, 20*time.Second)); moved != 0 {
		t.Errorf("after a day: moved by %v", moved)
	}
	now = now.Add(24 * time.Hour)
	if moved := w.Observe(now, now.Add(time.Millisecond), clockAt(now, 10*time.Minute)); moved == 0 {
		t.Error("ten minutes in a day are not noticed")
	}
	w.Forget()
	if moved := w.Observe(now, now, clockAt(now, time.Hour)); moved != 0 || w.Suspect(now) != 0 {
		t.Errorf("forgotten, and moved by %v", moved)
	}
}
