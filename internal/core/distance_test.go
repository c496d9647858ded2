package core

import (
	"testing"
	"time"
)

func TestDistance(t *testing.T) {
	const ms = time.Millisecond
	var m Distance
	calls := func() int { return m.Calls(ms, 16) }
	if got := calls(); got != 1 {
		t.Errorf("unknown: %d calls, want 1", got)
	}
	m.Took(Instant(0)+1, 20*ms)
	if got := calls(); got != 16 {
		t.Errorf("20 ms away: %d calls, want all 16", got)
	}
	m.Took(Instant(100*ms), 300*time.Microsecond)
	m.Took(Instant(200*ms), 40*ms) // busy, not distant
	if got := calls(); got != 1 {
		t.Errorf("near but busy: %d calls, want 1", got)
	}
	m.Took(Instant(5100*ms), 4*ms)
	if got := calls(); got != 1 {
		t.Errorf("the near measurement still counts: %d calls, want 1", got)
	}
	m.Took(Instant(10200*ms), 4*ms)
	if got := calls(); got != 5 {
		t.Errorf("moved 4 ms away: %d calls, want 5", got)
	}
}
