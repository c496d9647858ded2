package core

import (
	"math/rand/v2"
	"testing"
	"time"
)

// dumb decides a round the slow way: it looks at the whole history again after
// every event, with the rules written down one by one.
func dumb(cfg RoundConfig, history []timedEvent) (Verdict, uint64) {
	var token uint64
	for n := 1; n <= len(history); n++ {
		past := history[:n]
		answers, witnesses, raiseFailed := map[int]Event{}, map[int]bool{}, map[int]bool{}
		for _, e := range past {
			switch old := answers[e.ev.Node]; {
			case e.ev.Kind == Raised:
				witnesses[e.ev.Node] = true
			case e.ev.Kind == RaiseFailed:
				raiseFailed[e.ev.Node] = true
			case old.Kind != Granted || e.ev.Kind == Granted:
				answers[e.ev.Node] = e.ev
			}
		}
		var granted []Event
		for _, a := range answers {
			if a.Kind == Granted {
				granted = append(granted, a)
			}
		}
		outstanding := cfg.Nodes - len(answers)
		if len(granted) < cfg.Quorum {
			if len(granted)+outstanding < cfg.Quorum {
				return Lost, 0
			}
			continue
		}
		if token == 0 {
			counts := map[uint64]int{}
			for _, g := range granted {
				counts[g.Token]++
				token = max(token, g.Token)
			}
			for number, count := range counts {
				if count >= cfg.Quorum {
					token = number
				}
			}
		}
		possible := outstanding
		for _, g := range granted {
			if g.Token == token {
				witnesses[g.Node] = true
			} else if g.Token < token && !witnesses[g.Node] && !raiseFailed[g.Node] {
				possible++
			}
		}
		if len(witnesses) >= cfg.Quorum {
			if validity(cfg, past) < cfg.MinValidity {
				return Lost, 0
			}
			return Won, token
		}
		if len(witnesses)+possible < cfg.Quorum {
			return Lost, 0
		}
	}
	return Pending, 0
}

// validity is what is left of the lease after the last event, straight from the
// formula: the q-th newest send, the TTL, less drift.
func validity(cfg RoundConfig, history []timedEvent) time.Duration {
	newest := map[int]Instant{}
	for _, e := range history {
		if e.ev.Kind == Granted {
			newest[e.ev.Node] = max(newest[e.ev.Node], e.ev.Sent)
		}
	}
	var qth Instant
	for node, sent := range newest {
		above := 0
		for other, s := range newest {
			if s > sent || (s == sent && other <= node) {
				above++
			}
		}
		if above == cfg.Quorum {
			qth = sent
		}
	}
	drift := time.Duration(float64(cfg.TTL)*cfg.Drift.Rate) + cfg.Drift.Floor
	step := min(cfg.TTL/20, 250*time.Millisecond)
	return qth.Add(cfg.TTL - drift - step).Sub(history[len(history)-1].at)
}

// crossCheck compares Round with dumb on a history, on the same events in other
// orders, each doubled, and each late; it prints only on disagreement.
func crossCheck(t *testing.T, cfg RoundConfig, history []timedEvent) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(len(history)), 7))
	compare(t, cfg, history)
	for range 20 {
		shuffled := append([]timedEvent(nil), history...)
		rnd.Shuffle(len(shuffled), func(i, j int) { // times keep their order
			shuffled[i].ev, shuffled[j].ev = shuffled[j].ev, shuffled[i].ev
		})
		compare(t, cfg, shuffled)
		var doubled []timedEvent
		for _, e := range shuffled {
			doubled = append(doubled, e, e)
		}
		compare(t, cfg, doubled)
		for i := range shuffled {
			shuffled[i].at = shuffled[i].at.Add(time.Duration(rnd.Int64N(int64(cfg.TTL))))
			for j := i + 1; j < len(shuffled); j++ {
				shuffled[j].at = max(shuffled[j].at, shuffled[i].at)
			}
		}
		compare(t, cfg, shuffled)
	}
}

func compare(t *testing.T, cfg RoundConfig, history []timedEvent) Verdict {
	t.Helper()
	r := NewRound(cfg)
	var happened []timedEvent
	undone := 0
	for _, e := range history {
		isRaise := e.ev.Kind == Raised || e.ev.Kind == RaiseFailed
		if isRaise && !r.nodes[e.ev.Node].raising {
			continue // nobody asked: in this order it cannot have happened
		}
		happened = append(happened, e)
		for _, effect := range r.Step(e.at, e.ev) {
			if effect.Kind == Undo {
				undone++
			}
		}
		if r.Verdict() != Pending {
			break
		}
	}
	verdict, token := dumb(cfg, happened)
	if r.Verdict() != verdict || (verdict == Won && r.Token() != token) {
		t.Errorf("round says %v %d, dumb says %v %d, for %+v of %+v",
			r.Verdict(), r.Token(), verdict, token, happened, cfg)
	}
	if r.Verdict() == Won && undone > 0 {
		t.Errorf("a round that was won undid %d votes", undone)
	}
	return verdict
}

// TestRoundAgainstDumb compares the two on random histories, of 1 to 7 nodes
// and every quorum, and prints how often each verdict came.
func TestRoundAgainstDumb(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	count := map[Verdict]int{}
	for range 20_000 {
		nodes := 1 + rnd.IntN(7)
		cfg := RoundConfig{
			Nodes: nodes, Quorum: Majority(nodes) + rnd.IntN(nodes-Majority(nodes)+1),
			TTL: time.Second, MinValidity: time.Duration(rnd.Int64N(int64(800 * time.Millisecond))),
			Drift: Drift{Rate: 0.01, Floor: 2 * time.Millisecond},
		}
		history := randomHistory(rnd, cfg)
		count[compare(t, cfg, history)]++
	}
	t.Logf("verdicts: %v", count)
	for _, v := range []Verdict{Pending, Won, Lost} {
		if count[v] == 0 {
			t.Errorf("no history came to %v", v)
		}
	}
}

func randomHistory(rnd *rand.Rand, cfg RoundConfig) []timedEvent {
	var history []timedEvent
	at := Instant(0)
	numbers := make([]uint64, cfg.Nodes) // a node answers one attempt with one number
	for i := range numbers {
		numbers[i] = 10 + rnd.Uint64N(3)
	}
	for range rnd.IntN(5 * cfg.Nodes) {
		at = at.Add(time.Duration(rnd.Int64N(int64(50 * time.Millisecond))))
		ev := Event{Kind: Granted, Node: rnd.IntN(cfg.Nodes), Sent: at.Add(-time.Duration(rnd.Int64N(int64(at) + 1)))}
		if p := rnd.IntN(10); p >= 5 {
			ev.Kind = []EventKind{Refused, Silent, Unsent, Raised, RaiseFailed}[p-5]
		}
		if ev.Kind == Granted {
			ev.Token = numbers[ev.Node]
		}
		history = append(history, timedEvent{at, ev})
	}
	return history
}
