package redlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/locktest"
)

// clockLog has the nodes that were named for their clocks, in order.
type clockLog struct {
	mu    sync.Mutex
	named []string
}

func (l *clockLog) observe(e redlock.Event) {
	if e.Kind == redlock.EventClockMoved {
		l.mu.Lock()
		l.named = append(l.named, e.Node)
		l.mu.Unlock()
	}
}

func (l *clockLog) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.named...)
}

func free(t *testing.T, l *redlock.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestF42F43AClockThatJumps: within one renewal the node is named, and has no
// vote until its quarantine is over; the lease lives on with the others.
func TestF42F43AClockThatJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Minute, -100 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var log clockLog
			lk, s := locktest.New(t, 5, &redlock.Options{Observer: log.observe})
			l := acquire(t, lk, "x", nil)
			time.Sleep(20 * time.Second)
			s.Nodes[2].ShiftClock(jump)
			time.Sleep(4 * time.Second) // a renewal is due every 3.3
			if got := log.names(); len(got) != 1 || got[0] != "node3" {
				t.Fatalf("%v: named: %v", jump, got)
			}
			votes := func() int {
				y := acquire(t, lk, "y", nil)
				time.Sleep(time.Millisecond)
				count := 0
				for _, n := range s.Nodes {
					if _, _, ok := n.Get("redlock:{y}"); ok {
						count++
					}
				}
				free(t, y)
				return count
			}
			if got := votes(); got != 4 {
				t.Errorf("%v: %d nodes voted", jump, got)
			}
			time.Sleep(48 * time.Second)
			if got := votes(); got != 5 {
				t.Errorf("%v: its quarantine is over, and %d nodes voted", jump, got)
			}
			if l.Context().Err() != nil {
				t.Errorf("%v: %v", jump, context.Cause(l.Context()))
			}
		})
	}
}

// TestF42TheVoteOfAJumpedNode: A holds on 1 and 2 of 3, and 2 jumps ahead. Who
// has seen its clock before does not take its vote, and A, once it notices, knows
// that its lease is over.
func TestF42TheVoteOfAJumpedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		rival := s.Open(t, nil)
		free(t, acquire(t, rival, "y", nil)) // it has met them
		synctest.Wait()
		s.Nodes[2].Down(true)
		l := acquire(t, lk, "x", nil)
		s.Nodes[2].Down(false)
		s.Nodes[1].ShiftClock(time.Minute)
		_, err := rival.TryAcquire(t.Context(), "x", &redlock.AcquireOptions{MaxAttempts: 3})
		if err == nil {
			t.Error("two holders")
		}
		select {
		case <-l.Context().Done():
		case <-time.After(4 * time.Second):
			t.Error("the holder does not notice")
		}
		if !errors.Is(context.Cause(l.Context()), redlock.ErrLost) {
			t.Error(context.Cause(l.Context()))
		}
	})
}

// TestF46F47AClockAtAnotherRate: one that runs 8 % fast, or stands still, is
// named once it is off by the threshold.
func TestF46F47AClockAtAnotherRate(t *testing.T) {
	for name, perSecond := range map[string]time.Duration{"fast": 80 * time.Millisecond, "standing still": -time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var log clockLog
			lk, s := locktest.New(t, 5, &redlock.Options{Observer: log.observe})
			l := acquire(t, lk, "x", &redlock.AcquireOptions{TTL: 3 * time.Second})
			for range 10 {
				time.Sleep(time.Second)
				s.Nodes[4].ShiftClock(perSecond)
			}
			if got := log.names(); len(got) == 0 || got[0] != "node5" {
				t.Errorf("%s: named: %v", name, got)
			}
			if l.Context().Err() != nil {
				t.Errorf("%s: %v", name, context.Cause(l.Context()))
			}
		})
	}
}

// TestF48AllClocksAtOnce: it was our own that stood still, and leases are as much
// older.
func TestF48AllClocksAtOnce(t *testing.T) {
	for _, stood := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var log clockLog
			lk, s := locktest.New(t, 3, &redlock.Options{Observer: log.observe})
			l := acquire(t, lk, "x", nil)
			synctest.Wait()
			for _, n := range s.Nodes {
				n.ShiftClock(stood)
			}
			end := l.Deadline()
			err := l.Extend(t.Context()) // finds out; or some nodes are asked when it is known
			synctest.Wait()
			if lost := errors.Is(context.Cause(l.Context()), redlock.ErrLost); lost != (stood > 10*time.Second) {
				t.Errorf("stood still for %v: lost %v, %v", stood, lost, context.Cause(l.Context()))
			}
			if moved := end.Sub(l.Deadline()); err != nil && moved < stood-time.Second || moved > stood {
				t.Errorf("stood still for %v, and the lease ends %v earlier", stood, moved)
			}
			time.Sleep(20 * time.Second)
			if lost := l.Context().Err() != nil; lost != (stood > 10*time.Second) {
				t.Errorf("stood still for %v: lost %v after a while", stood, lost)
			}
			if got := log.names(); len(got) > 0 {
				t.Errorf("stood still for %v: named: %v", stood, got)
			}
			// No node is kept from voting.
			free(t, acquire(t, lk, "y", nil))
		})
	}
}

// TestF42ANewcomerAfterAJump: A holds on 1 and 2 of 3, and 2 jumps ahead. Who has only
// just begun knows what 2 has recorded of its clock, and does not take its vote, however
// many there are and however short they live; once the leases are over, it votes again.
func TestF42ANewcomerAfterAJump(t *testing.T) {
	for _, jump := range []time.Duration{2 * time.Second, time.Minute, -100 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, 3, nil)
			free(t, acquire(t, lk, "y", nil))
			s.Nodes[2].Down(true)
			l := acquire(t, lk, "x", &redlock.AcquireOptions{TTL: min(max(jump, time.Second), 30*time.Second), NoRenew: true})
			s.Nodes[2].Down(false)
			s.Nodes[1].ShiftClock(jump)
			for range 20 {
				rival := s.Open(t, nil)
				stolen, err := rival.TryAcquire(t.Context(), "x", &redlock.AcquireOptions{MaxAttempts: 2})
				if err == nil && l.Context().Err() == nil {
					t.Fatalf("%v: two holders", jump)
				}
				if err == nil {
					free(t, stolen)
				}
				if err := rival.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			for range 60 { // somebody has to watch
				time.Sleep(time.Second)
				free(t, acquire(t, s.Open(t, nil), "z", nil))
			}
			s.Nodes[0].Down(true)
			free(t, acquire(t, s.Open(t, nil), "x", nil)) // 2 votes
		})
	}
}

// TestClocksSteadilyApart: nobody loses a vote for a clock that is wrong, whichever
// minority is down, for those who watch nor for those who have only just begun.
func TestClocksSteadilyApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log clockLog
		soon := &redlock.AcquireOptions{Wait: 5 * time.Second}
		o := &redlock.Options{Observer: log.observe}
		lk, s := locktest.New(t, 5, o)
		for i, off := range []time.Duration{-7 * time.Minute, -time.Minute, 0, 3 * time.Minute, time.Hour} {
			s.Nodes[i].ShiftClock(off)
		}
		free(t, acquire(t, lk, "x", soon))
		for i := range s.Nodes {
			for j := range i {
				s.Nodes[i].Down(true)
				s.Nodes[j].Down(true)
				for range 4 {
					time.Sleep(10 * time.Second)
					free(t, acquire(t, lk, "x", soon))
					brief := s.Open(t, o)
					free(t, acquire(t, brief, "x", soon))
					if err := brief.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				s.Nodes[i].Down(false)
				s.Nodes[j].Down(false)
			}
		}
		if got := log.names(); len(got) > 0 {
			t.Errorf("named: %v", got)
		}
		free(t, acquire(t, lk, "x", soon))
		time.Sleep(time.Second)
		for _, st := range lk.Nodes(t.Context()) {
			if st.Err != nil {
				t.Errorf("%+v", st)
			}
		}
	})
}
