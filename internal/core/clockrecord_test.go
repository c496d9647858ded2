package core

import (
	"testing"
	"time"
)

// hosts are nodes whose clocks differ: each keeps a record, read by one client or more.
type hosts struct {
	off     []time.Duration // of each clock, against the true time
	records []ClockRecord
	doubt   time.Duration // of each reading
}

func newHosts(off ...time.Duration) *hosts {
	return &hosts{off: off, records: make([]ClockRecord, len(off)), doubt: 2 * time.Millisecond}
}

const (
	hostWindow = 30 * time.Second
	hostRate   = 0.01
)

// compare reads the clocks of all but those that are down, with a client of which the
// own clock is lag behind, and keeps the records that come of it. It returns what is
// said of each, one letter: s suspect, r recorded, a dot for neither, d down.
func (h *hosts) compare(at, lag time.Duration, down ...int) string {
	now := Instant(1).Add(at - lag)
	readings := make([]ClockReading, len(h.off))
	for i, off := range h.off {
		readings[i] = ReadClock(now.Add(-h.doubt), now, clockAt(Instant(1).Add(at-h.doubt/2), off))
		readings[i].Record = h.records[i]
	}
	for _, i := range down {
		readings[i] = ClockReading{}
	}
	said := ""
	for i, v := range CompareClocks(now, readings, Majority(len(h.off)), hostWindow, hostRate) {
		switch {
		case readings[i].At == 0:
			said += "d"
		case v.Suspect:
			said += "s"
		case v.Record.At != 0:
			said += "r"
			h.records[i] = ParseClockRecord(v.Record.String())
		default:
			said += "."
		}
	}
	return said
}

func TestCompareClocks(t *testing.T) {
	const m = time.Minute
	type step struct {
		at   time.Duration
		do   func(*hosts)
		down []int
		want string
	}
	leap := func(by time.Duration, nodes ...int) func(*hosts) {
		return func(h *hosts) {
			for _, i := range nodes {
				h.off[i] += by
			}
		}
	}
	forget := func(nodes ...int) func(*hosts) {
		return func(h *hosts) {
			for _, i := range nodes {
				h.records[i] = ClockRecord{}
			}
		}
	}
	for name, test := range map[string]struct {
		off   []time.Duration
		steps []step
	}{
		"one leaps": {[]time.Duration{0, 0, 0, 0, 0}, []step{
			{want: "rrrrr"}, {at: time.Second, want: "....."},
			{at: 2 * time.Second, do: leap(m, 2), want: "..s.."},
			{at: 3 * time.Second, down: []int{0, 1}, want: "dds.."},
		}},
		"one goes back, and returns": {[]time.Duration{0, 0, 0}, []step{
			{want: "rrr"}, {at: time.Second, do: leap(-m, 0), want: "s.."}, {at: 40 * time.Second, want: "srr"},
			{at: 41 * time.Second, do: leap(m, 0), want: "r.."},
		}},
		// Whichever minority is down, the median of the times is another one.
		"steadily apart": {[]time.Duration{-5 * m, -m, 0, 3 * m, 10 * m}, []step{
			{want: "rrrrr"},
			{at: 1 * time.Second, down: []int{0, 1}, want: "dd..."}, {at: 2 * time.Second, down: []int{3, 4}, want: "...dd"},
			{at: 31 * time.Second, down: []int{0, 1}, want: "ddrrr"}, {at: 62 * time.Second, down: []int{3, 4}, want: "rrrdd"},
			{at: 63 * time.Second, do: leap(m, 4), want: "...rs"},
		}},
		"two that disagree": {[]time.Duration{0, 0, 0}, []step{
			{want: "rrr"}, {at: time.Second, do: leap(m, 1), down: []int{2}, want: "ssd"},
		}},
		"two of four": {[]time.Duration{0, 0, 0, 0}, []step{
			{want: "rrrr"}, {at: time.Second, do: leap(m, 1, 3), want: "ssss"},
		}},
		"a majority outvotes": {[]time.Duration{0, 0, 0}, []step{
			{want: "rrr"}, {at: time.Second, do: leap(m, 0, 1), want: "rrs"}, // a minute older, as far as anybody can tell
		}},
		"all alike": {[]time.Duration{0, 0, 0}, []step{
			{want: "rrr"}, {at: time.Second, do: leap(m, 0, 1, 2), want: "rrr"}, // likewise
		}},
		// The records are of a time to come: they do not wait for it to grow old.
		"all go back": {[]time.Duration{0, 0, 0}, []step{
			{want: "rrr"}, {at: time.Second, do: leap(-60*m, 0, 1, 2), want: "rrr"}, {at: 2 * time.Second, want: "..."},
			{at: 33 * time.Second, want: "rrr"},
		}},
		"fewer than a quorum": {[]time.Duration{0, 0, 0, 0, 0}, []step{
			{down: []int{0, 1, 2}, want: "ddd.."}, {want: "rrrrr"},
			{at: time.Second, do: leap(m, 4), down: []int{0, 1, 2}, want: "ddd.."},
		}},
		"one record": {[]time.Duration{0, 0, 0}, []step{
			{want: "rrr"}, {at: time.Second, do: forget(0, 1), want: "rr."},
			{at: 2 * time.Second, do: forget(0, 1), down: []int{1}, want: "rd."},
			{at: 3 * time.Second, do: leap(m, 1), want: ".r."}, // recorded as it is
		}},
		"one alone": {[]time.Duration{0}, []step{
			{want: "r"}, {at: time.Second, do: leap(m, 0), want: "r"}, // old, as far as it can tell
			{at: 2 * time.Second, do: leap(-m, 0), want: "r"}, {at: 3 * time.Second, want: "."},
		}},
		// A small step is let pass, and is in the next record.
		"small steps": {[]time.Duration{0, 0, 0}, []step{
			{want: "rrr"}, {at: time.Second, do: leap(240*time.Millisecond, 0), want: "..."},
			{at: 31 * time.Second, want: "rrr"}, {at: 32 * time.Second, do: leap(240*time.Millisecond, 0), want: "..."},
			{at: 33 * time.Second, do: leap(80*time.Millisecond, 0), want: "s.."},
		}},
		// What drift may make is as much as ClockWatch lets pass.
		"long unused": {[]time.Duration{0, 0, 0}, []step{
			{want: "rrr"}, {at: 24 * time.Hour, do: leap(40*time.Second, 0), want: "rrr"},
			{at: 48 * time.Hour, do: leap(m, 0), want: "srr"},
		}},
	} {
		for _, lag := range []time.Duration{0, -time.Hour, 20 * 365 * 24 * time.Hour} {
			h := newHosts(test.off...)
			for i, s := range test.steps {
				if s.do != nil {
					s.do(h)
				}
				if got := h.compare(s.at, lag, s.down...); got != s.want {
					t.Errorf("%s, own clock %v behind, step %d: got %s, want %s", name, lag, i+1, got, s.want)
				}
			}
		}
	}
}

// A clock at a wrong rate is found: its record is never replaced while it is young.
func TestCompareClocksAtAnotherRate(t *testing.T) {
	for _, rate := range []float64{0.08, -1, 0.03} {
		h := newHosts(0, 0, 0)
		found := time.Duration(0)
		for at := time.Duration(0); at < time.Minute && found == 0; at += 100 * time.Millisecond {
			h.off[1] = time.Duration(rate * float64(at))
			if h.compare(at, 0)[1] == 's' {
				found = at
			}
		}
		if want := time.Duration(float64(clockStep+h.doubt) / (max(rate, -rate) - 2*hostRate)); found == 0 || found > want+time.Second {
			t.Errorf("rate %v: found after %v, want about %v", rate, found, want)
		}
	}
}

// A reading in much doubt says little, and its record is replaced by a better one soon;
// a good one is kept.
func TestCompareClocksInDoubt(t *testing.T) {
	h := newHosts(0, 0, 0)
	for doubt, want := range map[time.Duration]string{260 * time.Millisecond: "...", time.Hour: "..."} {
		if h.doubt = doubt; h.compare(0, 0) != want {
			t.Errorf("in doubt by %v, and recorded", doubt)
		}
	}
	h.doubt = 240 * time.Millisecond
	if got := h.compare(0, 0); got != "rrr" {
		t.Error(got)
	}
	h.off[0] = 600 * time.Millisecond
	if got := h.compare(time.Second, 0); got != "..." {
		t.Errorf("within the doubt: %s", got)
	}
	h.off[0] = 0
	h.doubt = time.Millisecond
	for i, want := range []string{"rrr", "..."} {
		if got := h.compare(2*time.Second, 0); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	h.doubt = 200 * time.Millisecond
	for at, want := range map[time.Duration]string{40 * time.Second: "...", 63 * time.Second: "rrr"} {
		c := &hosts{h.off, append([]ClockRecord(nil), h.records...), h.doubt}
		if got := c.compare(at, 0); got != want {
			t.Errorf("after %v: %s, want %s", at, got, want)
		}
	}
}

func TestClockRecordText(t *testing.T) {
	r := ClockRecord{-5 * time.Second, 7 * time.Microsecond, 1_785_000_000 * time.Second}
	if got := r.String(); got != "-5000000 7 1785000000000000" || ParseClockRecord(got) != r {
		t.Errorf("%q is read as %+v", got, ParseClockRecord(got))
	}
	for _, text := range []string{
		"", "x", "1 2", "2 1 5", "1 2 3 4", "1 2 3x", " 1 2 3", "1  2 3", "01 2 3", "1 2 99999999999999999999", "1 2 9223372036854775807",
	} {
		if got := ParseClockRecord(text); got != (ClockRecord{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
