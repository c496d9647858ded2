package core

import (
	"testing"
	"time"
)

var drift = Drift{Rate: 0.01, Floor: 2 * time.Millisecond}

// The library that B17 was reported for added the drift to the validity.
func TestB17DriftComesOffTheValidity(t *testing.T) {
	const ttl, elapsed = 10 * time.Second, time.Second
	h := NewHolding(1, 1, drift)
	sent := Instant(5 * time.Second)
	now := sent.Add(elapsed)
	h.Ack(now, 0, sent, ttl)
	left := h.Until().Sub(now)
	// 10 s - 1 s - (100 ms + 2 ms), and 250 ms for an unnoticed step.
	if want := 8898*time.Millisecond - 250*time.Millisecond; left != want {
		t.Errorf("validity %v, want %v", left, want)
	}
	if left >= ttl-elapsed {
		t.Errorf("validity %v is not below TTL - elapsed", left)
	}
}

func TestMarginOfShortTTLs(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		20 * time.Millisecond:  3200 * time.Microsecond, // 0.2 + 2 + 1
		300 * time.Millisecond: 20 * time.Millisecond,   // 3 + 2 + 15
		10 * time.Second:       352 * time.Millisecond,
		30 * time.Second:       552 * time.Millisecond,
	} {
		if got := drift.Margin(ttl); got != want {
			t.Errorf("margin of %v is %v, want %v", ttl, got, want)
		}
	}
}

func TestB19AQuorumThatCameAfterTheTTLIsLost(t *testing.T) {
	for _, delay := range []time.Duration{600 * time.Millisecond, 950 * time.Millisecond, 1050 * time.Millisecond} {
		r := NewRound(RoundConfig{Nodes: 3, Quorum: 2, TTL: time.Second, MinValidity: 500 * time.Millisecond, Drift: drift})
		for i := range 3 {
			r.Step(Instant(delay), Event{Kind: Granted, Node: i, Sent: 1, Token: 7})
		}
		if r.Verdict() != Lost || !r.Late() {
			t.Errorf("all grants after %v of a TTL of 1 s: %v, late %v", delay, r.Verdict(), r.Late())
		}
	}
}

func TestB48EachExtensionCountsFromItsOwnSend(t *testing.T) {
	const ttl = 10 * time.Second
	h := NewHolding(1, 1, drift)
	h.Ack(1, 0, 1, ttl)
	sent := Instant(1)
	for i := range 100 {
		// Some are late and some early, so that a count on from the last end,
		// by whatever interval, strays.
		sent = sent.Add(2900 * time.Millisecond)
		if i < 50 {
			sent = sent.Add(300 * time.Millisecond)
		}
		h.Ack(sent.Add(time.Millisecond), 0, sent, ttl)
		if left := h.Until().Sub(sent); left < ttl*95/100 || left >= ttl {
			t.Fatalf("validity after extension %d is %v", i+1, left)
		}
	}
}

func TestB20QuorumIsOfAllNodes(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4} {
		if got := Majority(n); got != want {
			t.Errorf("majority of %d is %d, want %d", n, got, want)
		}
	}
	// Three of five cannot be reached: the two others are no quorum of those left.
	r := NewRound(RoundConfig{Nodes: 5, Quorum: 3, TTL: time.Second, Drift: drift})
	for i := range 3 {
		r.Step(1, Event{Kind: Unsent, Node: i})
	}
	r.Step(2, Event{Kind: Granted, Node: 3, Sent: 1, Token: 1})
	r.Step(2, Event{Kind: Granted, Node: 4, Sent: 1, Token: 1})
	if r.Verdict() != Lost {
		t.Errorf("two of five: %v", r.Verdict())
	}
}

// A derived time that comes out as zero must not turn into a busy loop, or into
// a command that a server refuses.
func TestB36DerivedTimesAreNeverZero(t *testing.T) {
	for _, rnd := range []uint64{0, 1, 1 << 63, 1<<64 - 1} {
		for _, d := range []time.Duration{0, 1, time.Millisecond, time.Hour} {
			for try := range 70 {
				for _, held := range []bool{false, true} {
					if got := Backoff(try, d, held, d, rnd); got <= 0 {
						t.Fatalf("backoff(%d, %v, %v) = %v", try, d, held, got)
					}
				}
			}
			if got := renewAgain(d, rnd); got < time.Millisecond {
				t.Fatalf("renew again with %v left: %v", d, got)
			}
		}
		if got := RenewEvery(20*time.Millisecond, rnd); got < 5*time.Millisecond {
			t.Fatalf("renew every %v", got)
		}
	}
}

func TestB71PausesAreSpread(t *testing.T) {
	const clients = 20
	seen := map[time.Duration]bool{}
	for i := range uint64(clients) {
		seen[Backoff(6, time.Millisecond, false, 0, i*0x9E3779B97F4A7C15)] = true
	}
	if len(seen) < clients-1 {
		t.Errorf("%d clients that lose together pause for only %d different times", clients, len(seen))
	}
}

// TestB72BackoffHasNoState: the strategy is a function, so no call can use up
// the tries of another.
func TestB72BackoffHasNoState(t *testing.T) {
	const rnd = 0x9E3779B97F4A7C15 // large, so that the pause depends on the limit
	for try := range 10 {
		first := Backoff(try, time.Millisecond, false, 0, rnd)
		Backoff(9, time.Second, true, time.Second, 7)
		if again := Backoff(try, time.Millisecond, false, 0, rnd); again != first {
			t.Errorf("try %d: %v, then %v", try, first, again)
		}
	}
}

func TestB73BackoffGrowsToItsCap(t *testing.T) {
	const most = 1<<64 - 1 // jitter at its longest is not at this rnd, but grows alike
	for _, c := range []struct {
		try       int
		held      bool
		remaining time.Duration
		atMost    time.Duration
	}{
		{0, false, 0, time.Millisecond},
		{3, false, 0, 8 * time.Millisecond},
		{7, false, 0, 128 * time.Millisecond},
		{10, false, 0, 128 * time.Millisecond},
		{60, false, 0, 128 * time.Millisecond},
		{12, true, time.Hour, 512 * time.Millisecond},
		{60, true, time.Hour, 512 * time.Millisecond},
		{60, true, 100 * time.Millisecond, 101 * time.Millisecond},
	} {
		var longest time.Duration
		for i := range uint64(2000) {
			longest = max(longest, Backoff(c.try, 0, c.held, c.remaining, i*(most/1999)))
		}
		if longest > c.atMost || longest < c.atMost*9/10 {
			t.Errorf("%+v: longest pause %v, want about %v", c, longest, c.atMost)
		}
	}
}

func TestProposer(t *testing.T) {
	var p Proposer
	if got := p.Next(1000); got != 1000 {
		t.Errorf("first proposal %d, want the wall clock", got)
	}
	if got := p.Next(900); got != 1001 {
		t.Errorf("clock went back: %d, want one more than the last", got)
	}
	p.Saw(5000)
	if got := p.Next(1002); got != 5001 {
		t.Errorf("after a node had given out 5000: %d", got)
	}
	if got := p.Next(-3); got != 5002 {
		t.Errorf("wall clock before 1970: %d", got)
	}
	p.Saw(1<<53 - 2)
	for range 3 {
		if got := p.Next(0); got >= 1<<53 {
			t.Errorf("proposal %d cannot be counted in Lua", got)
		}
	}
}

func TestNodeClockErrsLate(t *testing.T) {
	var c NodeClock
	if got := c.Latest(5); got != 0 {
		t.Errorf("unknown clock: %d", got)
	}
	const base = int64(1_785_000_000_000_000)
	sent := Instant(7 * time.Second)
	// The node read its clock 3 ms after the send; nobody knows when exactly.
	c.Observe(sent, base+3000)
	truth := base + 10_000 // the node's clock 10 ms after the send
	if got := c.Latest(sent.Add(10 * time.Millisecond)); got < truth || got > truth+3000+1001 {
		t.Errorf("latest = %d, want %d and at most 3 ms and a tenth of 10 more", got, truth)
	}
	// An hour later the node's clock has gained a second: no reason to call an
	// operation stale.
	if got := c.Latest(sent.Add(time.Hour)); got < base+3_601_000_000 {
		t.Errorf("an hour later: %d", got-base)
	}
}
