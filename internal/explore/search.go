package explore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
)

// Result is what a search has seen.
type Result struct {
	States, Moves int
	// Counts is how often each move was made.
	Counts map[string]int
	// Longest is for how many ticks somebody waited at most once all was calm.
	Longest int
	// Won is in how many states somebody holds the name.
	Won int
}

// Search visits every state of the world. The error of one that must not be tells the
// moves that lead to it.
func Search(w *World) (Result, error) {
	s := &search{world: w, seen: map[uint64]struct{}{}, good: map[uint64]int{}, seed: maphash.MakeSeed()}
	s.result.Counts = map[string]int{}
	start := newState(w)
	s.visit(start)
	err := s.run(start)
	return s.result, err
}

type search struct {
	world *World
	seed  maphash.Seed
	seen  map[uint64]struct{}
	// good are the states that calm was found to end well from, and for how many ticks
	// somebody waits then.
	good   map[uint64]int
	result Result
	buffer []byte
}

// step is a state on the way, with the moves that are left to try.
type step struct {
	state *state
	left  []move
	made  move // the one that led here
}

func (s *search) hash(t *state) uint64 {
	s.buffer = t.append(s.buffer[:0])
	return maphash.Bytes(s.seed, s.buffer)
}

// visit reports whether the state is new.
func (s *search) visit(t *state) bool {
	h := s.hash(t)
	if _, known := s.seen[h]; known {
		return false
	}
	s.seen[h] = struct{}{}
	s.result.States++
	for _, c := range t.clients {
		if c.phase == holding {
			s.result.Won++
			break
		}
	}
	return true
}

func (s *search) run(start *state) error {
	way := []step{{state: start, left: start.moves()}}
	for len(way) > 0 {
		at := &way[len(way)-1]
		if len(at.left) == 0 {
			way = way[:len(way)-1]
			continue
		}
		m := at.left[len(at.left)-1]
		at.left = at.left[:len(at.left)-1]
		next := at.state.make(m)
		s.result.Moves++
		s.result.Counts[moveNames[m.kind]]++
		if !s.visit(next) {
			continue
		}
		err := errors.Join(next.ordered(at.state), next.check())
		if err == nil {
			err = s.calm(next)
		}
		if err != nil {
			return fmt.Errorf("%w\n%s%s", err, trace(way), "  "+m.String())
		}
		way = append(way, step{state: next, left: next.moves(), made: m})
	}
	return nil
}

// calm plays on from t without anything going wrong, up to a state that is known to
// end well. It fails unless everybody that waits gets the name, and in time.
func (s *search) calm(t *state) error {
	type visited struct {
		hash uint64
		now  int
	}
	var way []visited
	began, moves, end := t.now, 0, 0 // moves in one tick
	for {
		h := s.hash(t)
		if left, known := s.good[h]; known || t.waiters() == 0 {
			end = t.now + left
			break
		}
		way = append(way, visited{h, t.now})
		m := t.calmMove()
		if moves++; m.kind == passes {
			moves = 0
		}
		switch {
		case t.now-began > s.world.within():
			return errors.New("all is calm, and somebody waits for ever")
		case moves > spin:
			return errors.New("all is calm, and messages go round and round")
		}
		next := t.make(m)
		if err := errors.Join(next.ordered(t), next.check()); err != nil {
			return err
		}
		t = next
	}
	for _, v := range way {
		s.good[v.hash] = end - v.now
	}
	s.result.Longest = max(s.result.Longest, end-began)
	if end-began > s.world.within() {
		return fmt.Errorf("all is calm, and somebody waits for %d ticks", end-began)
	}
	return nil
}

func trace(way []step) string {
	var b strings.Builder
	for _, at := range way[1:] {
		fmt.Fprintf(&b, "  %v\n", at.made)
	}
	return b.String()
}

// ordered reports that a lease began, after was, whose token is not larger than those
// of leases that were over before, or before its turn.
func (s *state) ordered(was *state) error {
	for i, c := range s.clients {
		if c.phase != holding || was.clients[i].phase == holding {
			continue
		}
		least := c.above
		if s.world.Breaks == 0 { // else a vote may be gone that the client still counts
			least = was.least(c)
		}
		if c.token <= least {
			return fmt.Errorf("client %d has the token %d, after a lease with %d was over", i, c.token, least)
		}
		for j, d := range s.clients {
			if d.phase == waiting && int(c.before[j]) == d.turn {
				return fmt.Errorf("client %d has passed client %d, which stood in line before", i, j)
			}
		}
	}
	return nil
}
