package core

import (
	"testing"
	"time"
)

// held returns a lease of 10 s that three of three nodes granted when asked at 1.
func held() *Holding {
	h := NewHolding(3, 2, Drift{})
	for i := range 3 {
		h.Ack(1, i, 1, 10*time.Second)
	}
	return &h
}

func TestEnding(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(h *Holding)
		at      time.Duration
		want    Ending
	}{
		"none":                {func(*Holding) {}, time.Second, 0},
		"one node forgot":     {func(h *Holding) { h.Vanish(2, 0) }, time.Second, 0},
		"two forgot":          {func(h *Holding) { h.Vanish(2, 0); h.Vanish(2, 1) }, time.Second, Forgotten},
		"one refuses":         {func(h *Holding) { h.Break(0) }, time.Second, 0},
		"two refuse":          {func(h *Holding) { h.Break(0); h.Break(1) }, time.Second, Broken},
		"its time is over":    {func(*Holding) {}, 10 * time.Second, Passed},
		"broken and all over": {func(h *Holding) { h.Break(0); h.Break(1) }, 10 * time.Second, Passed},
	} {
		h := held()
		test.happens(h)
		if got := h.Ending(Instant(0).Add(test.at)); got != test.want {
			t.Errorf("%s: %d, not %d", name, got, test.want)
		}
	}
}

// An answer that others overtook tells nothing new, also if the newer one was that
// the lease is gone. One that is doubled does no harm.
func TestNews(t *testing.T) {
	h := held()
	for what, sent := range []Instant{4, 5, 5} {
		if !h.News(0, sent) {
			t.Errorf("answer %d is no news", what)
		}
	}
	if !h.News(1, 3) {
		t.Error("another node's answer is no news")
	}
	h.Vanish(6, 0)
	if h.News(0, 4) {
		t.Error("an overtaken answer is news")
	}
}

func TestNextRenewal(t *testing.T) {
	begun, now := Instant(time.Second), Instant(2*time.Second)
	h := held()
	r, _ := NewRenewal(begun, 3, 9*time.Second)
	for i := range 2 {
		r.Step(now, h, RenewalEvent{Kind: Extended, Node: i, Sent: begun})
	}
	// A third of the TTL from when it began, or a tenth of that sooner.
	if next := r.Next(now, h, 7); next < begun.Add(2700*time.Millisecond) || next > begun.Add(3*time.Second) {
		t.Errorf("after success at %v", time.Duration(next))
	}
	r, _ = NewRenewal(begun, 3, 9*time.Second)
	for i := range 2 {
		r.Step(now, h, RenewalEvent{Kind: Unanswered, Node: i})
	}
	if next := r.Next(now, h, 7); next <= now || next > now.Add(time.Second) {
		t.Errorf("after failure at %v", time.Duration(next))
	}
}
