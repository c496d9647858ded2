package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"example.com/redlock/internal/core"
)

func TestChecksFindPlantedFaults(t *testing.T) {
	hold := func(token uint64, called, start, end core.Instant) *Hold {
		return &Hold{Token: token, Called: called, Start: start, End: end, Deadline: 100}
	}
	elsewhere := hold(1, 2, 3, 9)
	elsewhere.Name = 1
	for what, c := range map[string]struct {
		history           []*Hold
		intervals, tokens bool // hold
	}{
		"touching":          {[]*Hold{hold(1, 1, 2, 5), hold(2, 4, 5, 9)}, true, true},
		"other name":        {[]*Hold{hold(1, 1, 2, 5), elsewhere}, true, true},
		"overlap":           {[]*Hold{hold(1, 1, 2, 5), hold(2, 3, 4, 9)}, false, true},
		"inside":            {[]*Hold{hold(2, 3, 4, 5), hold(1, 1, 2, 9)}, false, true},
		"over at once":      {[]*Hold{hold(1, 1, 2, 5), hold(2, 3, 4, 4)}, true, true},
		"until deadline":    {[]*Hold{hold(1, 1, 2, 0), hold(2, 3, 100, 200)}, true, true},
		"before deadline":   {[]*Hold{hold(1, 1, 2, 0), hold(2, 3, 99, 0)}, false, true},
		"same token":        {[]*Hold{hold(1, 1, 2, 5), hold(1, 4, 5, 9)}, true, false},
		"disorder":          {[]*Hold{hold(2, 1, 2, 5), hold(1, 4, 5, 9)}, true, false},
		"order undefined":   {[]*Hold{hold(2, 1, 2, 3), hold(1, 1, 4, 9)}, true, true},
		"disorder, smaller": {[]*Hold{hold(1, 1, 2, 3), hold(7, 4, 5, 6), hold(3, 8, 9, 10)}, true, false},
	} {
		if err := CheckIntervals(c.history); (err == nil) != c.intervals {
			t.Errorf("%s: intervals: %v", what, err)
		}
		if err := CheckTokens(c.history, false); (err == nil) != c.tokens {
			t.Errorf("%s: tokens: %v", what, err)
		}
	}
}

func TestTokensByAClockAreExcused(t *testing.T) {
	before := &Hold{Token: 7, Called: 1, Start: 2, End: 3}
	for what, c := range map[string]struct {
		token, next uint64 // the second may be excused
		holds       bool
	}{
		"smaller":           {5, 8, true},
		"same":              {7, 8, true},
		"next not above it": {9, 8, false},
		"next like it":      {9, 9, false},
	} {
		history := []*Hold{before,
			{Token: c.token, ByClock: true, Called: 4, Start: 5, End: 6}, {Token: c.next, Called: 7, Start: 8, End: 9}}
		if err := CheckTokens(history, true); (err == nil) != c.holds {
			t.Errorf("%s: excused: %v", what, err)
		}
		if CheckTokens(history, false) == nil {
			t.Errorf("%s: is not found without an excuse", what)
		}
	}
}

func TestRegister(t *testing.T) {
	r := &register{}
	one, _ := r.open(1)
	two, _ := r.open(2)
	if r.write(1, one+1) || !r.write(2, two+1) || checkRegister(r) != nil {
		t.Errorf("the gate let a smaller token write: %+v", r)
	}
	if _, ok := r.open(1); ok {
		t.Error("the gate was opened with a smaller token")
	}
	r.highest = 0 // a gate that forgets loses updates
	if !r.write(1, one+1) || checkRegister(r) == nil {
		t.Errorf("a lost update is not found: %+v", r)
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	q := &queue{}
	type stamp struct {
		at  core.Instant
		seq int
	}
	var got []stamp
	for seq := range 1000 {
		at := core.Instant(rnd.IntN(100))
		q.at(at, func() { got = append(got, stamp{at, seq}) })
	}
	for q.step(99) {
	}
	inOrder := slices.IsSortedFunc(got, func(a, b stamp) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.seq - b.seq
	})
	if len(got) != 1000 || !inOrder {
		t.Errorf("%d events, in order: %v", len(got), inOrder)
	}
}
