package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
)

// TestF60OneIsWoken: hundreds wait, and the release asks nothing of those that are not
// next.
func TestF60OneIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		ts := newTaps()
		b := s.open(ts.wrap)
		held := s.take(s.open(nil), ofTenSeconds)
		time.Sleep(100 * time.Millisecond) // it has all nodes
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		got := make(chan backend.Lease, 1)
		for range 300 {
			wg.Go(func() {
				if l, err := b.Acquire(ctx, ofTenSeconds); err == nil {
					got <- l
				}
			})
		}
		time.Sleep(5*time.Second + 500*time.Millisecond) // between two heartbeats
		before := ts.count(node.Wait)
		_ = held.Release(t.Context())
		l := <-got
		time.Sleep(100 * time.Millisecond)
		if asked := ts.count(node.Wait) - before; asked > 0 {
			t.Errorf("the hand-over made those that wait ask %d times", asked)
		}
		cancel()
		wg.Wait()
		_ = l.Release(t.Context())
		s.wantNothing(time.Second)
	})
}

// TestF63AClockThatIsBehindIsNotFirst, nor last one that is ahead: whoever comes later
// stands behind those that are there. Each is new, and has seen no number of the others.
func TestF63AClockThatIsBehindIsNotFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		held := s.take(s.open(nil), ofTenSeconds)
		var order []int
		var wg sync.WaitGroup
		for i := range 9 {
			b := s.open(nil)
			off := []time.Duration{0, time.Hour, -time.Hour}[i%3]
			b.wall = func() time.Time { return time.Now().Add(off) }
			wg.Go(func() {
				a := b.standInLine(ofTenSeconds)
				<-a.settled
				order = append(order, i) // one at a time: it is held
				_ = a.Release(t.Context())
			})
			time.Sleep(100 * time.Millisecond) // it stands in line before the next comes
		}
		_ = held.Release(t.Context())
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 9 {
			t.Errorf("served in the order %v", order)
		}
	})
}

// TestB98FlushedUnderWaiters: all nodes lose their data while a hundred wait. Nobody
// spins, and everybody is served once the nodes vote again.
func TestB98FlushedUnderWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		s.delay(time.Millisecond)
		ts := newTaps()
		b := s.open(ts.wrap)
		held := s.take(b, ofTenSeconds)
		const callers = 100
		var wg sync.WaitGroup
		served := 0
		for range callers {
			wg.Go(func() {
				l := s.take(b, ofTenSeconds)
				served++ // one at a time: it is held
				_ = l.Release(t.Context())
			})
		}
		time.Sleep(2 * time.Second)
		for _, m := range s.ms {
			m.Wipe()
		}
		flushed := time.Now()
		_ = held.Release(t.Context())
		wg.Wait()
		took := time.Since(flushed)
		// 45.3 s of quarantine, and as long again as is left of the last pause.
		if served != callers || took > time.Minute {
			t.Errorf("%d of %d were served within %v", served, callers, took)
		}
		if asked := ts.count(node.Wait) + ts.count(node.Acquire); asked > 3*callers*100 {
			t.Errorf("asked %d times", asked)
		}
		s.wantNothing(10 * time.Second)
	})
}

// TestB98ClosedWhileTheyWait, at any moment: each wait ends, with an error that says why,
// and leaves nothing.
func TestB98ClosedWhileTheyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		s.delay(time.Millisecond)
		held := s.take(s.open(nil), ofTenSeconds)
		rnd := rand.New(rand.NewPCG(5, 6))
		for range rounds(1000) {
			b := s.open(nil)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if l, err := b.Acquire(context.Background(), ofTenSeconds); l != nil || !errors.Is(err, backend.ErrClosed) {
						t.Errorf("lease %v, error %v", l, err)
					}
				})
			}
			time.Sleep(time.Duration(rnd.IntN(8000)) * time.Microsecond)
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
			wg.Wait()
		}
		time.Sleep(time.Second)
		for _, m := range s.ms {
			if keys := inLine(m.Keys()); len(keys) > 0 {
				t.Errorf("left behind: %q", keys)
			}
		}
		_ = held.Release(t.Context())
	})
}

// rounds is how often to repeat what is random: n, or less of it in a short run.
func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// inLine are those of keys that belong to a line.
func inLine(keys []string) []string {
	return slices.DeleteFunc(keys, func(k string) bool { return !strings.HasSuffix(k, ":line") })
}

// TestB98TheLastWaiterGivesUp: the subscription ends some time after, or serves the one
// that comes just then.
func TestB98TheLastWaiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		ts := newTaps()
		b, other := s.open(ts.wrap), s.open(nil)
		rnd := rand.New(rand.NewPCG(7, 8))
		for range rounds(1000) {
			held := s.take(other, ofTenSeconds)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if _, err := b.Acquire(ctx, ofTenSeconds); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			// Around the moment at which the subscription ends.
			time.Sleep(lingerOn - 2*time.Millisecond + time.Duration(rnd.IntN(4000))*time.Microsecond)
			q := &waiters{s: s}
			q.wait(0, b, 0)
			released := time.Now()
			_ = held.Release(t.Context())
			q.want(1)
			if took := q.at[0].Sub(released); took > 10*time.Millisecond {
				t.Fatalf("served after %v", took)
			}
		}
		time.Sleep(lingerOn + 100*time.Millisecond)
		if lines, busy := left(b); lines > 0 || busy > 0 || ts.listening.Load() > 0 {
			t.Errorf("left: %d waiters, %d operations, %d subscriptions", lines, busy, ts.listening.Load())
		}
	})
}
