package explore

import (
	"fmt"

	"example.com/redlock/internal/node"
)

// within is for how many ticks somebody may wait once all is calm: the longest lease
// that somebody left behind, the time of a heartbeat, and a few turns. In a fair world
// nobody left anything behind, and each is handed the name by the one before.
func (w *World) within() int {
	if w.Fair {
		return 2
	}
	return 20
}

// spin is how many messages are too many for a tick in which all is calm.
const spin = 1000

// swaps is how often a waiter may give votes back.
const swaps = 12

// waiters is how many wait.
func (s *state) waiters() int {
	count := 0
	for _, c := range s.clients {
		if c.phase == waiting {
			count++
		}
	}
	return count
}

// calmMove is what happens next if nothing goes wrong: what is on its way arrives,
// then holders release, then time passes.
func (s *state) calmMove() move {
	for i := range s.clients {
		for n := range s.nodes {
			switch {
			case len(s.replies[i][n]) > 0:
				return move{answers, i, n}
			case len(s.requests[i][n]) > 0 && !s.frozen(n):
				return move{arrives, i, n}
			}
		}
	}
	for p, row := range s.pushes {
		for n, q := range row {
			if len(q) > 0 {
				return move{pushes, p, n}
			}
		}
	}
	for i, c := range s.clients {
		if c.phase == holding {
			return move{releases, i, 0}
		}
	}
	return move{kind: passes}
}

// check reports what must never be.
func (s *state) check() error {
	writers, readers := 0, 0
	for i, c := range s.clients {
		if c.phase == waiting && c.waiter.Attempt() > swaps {
			return fmt.Errorf("client %d gets votes and gives them back, again and again", i)
		}
		if c.phase != holding || c.freed || c.lease.Until() <= s.instant() {
			continue
		}
		if c.about.Mode == node.Shared {
			readers++
			continue
		}
		writers++
		for j, d := range s.clients {
			if j != i && d.phase == holding && d.token == c.token {
				return fmt.Errorf("clients %d and %d have the token %d", i, j, c.token)
			}
		}
	}
	if writers > 1 || writers == 1 && readers > 0 {
		return fmt.Errorf("%d writers and %d readers hold the name at once", writers, readers)
	}
	return nil
}
