package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/locktest"
)

// TestB42ManyLeasesAreRenewedTogether holds thousands of leases for a minute
// over nodes 20 ms away, one of which hangs: none is lost, and no goroutine
// belongs to a lease.
func TestB42ManyLeasesAreRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takers = 200
		leases := 4_000
		if soak() {
			leases = 20_000
		}
		var lost atomic.Int64
		lk, s := locktest.New(t, 5, &redlock.Options{Observer: func(e redlock.Event) {
			if e.Kind == redlock.EventLost {
				lost.Add(1)
			}
		}})
		for _, n := range s.Nodes {
			n.Delay(20 * time.Millisecond)
		}
		s.Nodes[0].Freeze()
		defer s.Nodes[0].Thaw()
		before := runtime.NumGoroutine()
		var wg sync.WaitGroup
		for g := range takers {
			wg.Go(func() {
				for i := range leases / takers {
					if _, err := lk.Acquire(t.Context(), fmt.Sprint(g, ".", i), nil); err != nil {
						t.Errorf("taker %d, lease %d: %v", g, i, err)
						return
					}
				}
			})
		}
		wg.Wait()
		most := 0
		for range 60 {
			time.Sleep(time.Second)
			most = max(most, runtime.NumGoroutine())
		}
		if n := lost.Load(); n > 0 {
			t.Errorf("%d leases were lost", n)
		}
		if added := most - before; added > 5*64 {
			t.Errorf("%d goroutines for 5 nodes", added)
		}
	})
}

// TestB106NothingIsKeptOfANameThatIsFree takes very many different names, one
// after the other.
func TestB106NothingIsKeptOfANameThatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, _ := locktest.New(t, 3, nil)
		cycles := 20_000
		if soak() {
			cycles = 1_000_000
		}
		take := func(from, to int) {
			for i := from; i < to; i++ {
				l, err := lk.Acquire(t.Context(), fmt.Sprintf("name %d", i), nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		take(0, cycles/10)
		heap, goroutines := heapInUse(), runtime.NumGoroutine()
		take(cycles/10, cycles)
		// 4,096 counters a node at most; all else is gone.
		if grown := heapInUse() - heap; grown > 8<<20 {
			t.Errorf("the heap grew by %d bytes over %d names", grown, cycles)
		}
		if more := runtime.NumGoroutine() - goroutines; more > 20 {
			t.Errorf("%d more goroutines", more)
		}
	})
}

// TestAMillionOperationsLeaveNothing: 100,000 cycles of acquire and release on
// five nodes. Goroutines, memory and open files at the end are those after the
// first tenth.
func TestAMillionOperationsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cycles, callers = 100_000, 10
		lk, _ := locktest.New(t, 5, nil)
		run := func(cycles int) {
			var wg sync.WaitGroup
			for g := range callers {
				wg.Go(func() {
					for i := range cycles / callers {
						l, err := lk.Acquire(t.Context(), fmt.Sprint(g, ".", i%100), nil)
						if err != nil {
							t.Error(err)
							return
						}
						if err := l.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			synctest.Wait()
		}
		run(cycles / 10)
		heap, goroutines, files := heapInUse(), runtime.NumGoroutine(), openFiles(t)
		run(cycles * 9 / 10)
		if grown := heapInUse() - heap; grown > 4<<20 {
			t.Errorf("the heap grew by %d bytes", grown)
		}
		if more := runtime.NumGoroutine() - goroutines; more > 5 {
			t.Errorf("%d goroutines more", more)
		}
		if more := openFiles(t) - files; more > 0 {
			t.Errorf("%d files or sockets more", more)
		}
	})
}

// openFiles counts the descriptors of this process, where that can be seen.
func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Logf("open files are not counted here: %v", err)
	}
	return len(entries)
}

// TestB74AWaitOfAnyLengthKeepsNoHistory waits for a held name for hours.
func TestB74AWaitOfAnyLengthKeepsNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		acquire(t, s.Open(t, nil), "x", nil)
		// Measured while it waits: afterwards the history would be gone anyway.
		var early, late int64
		told := 0
		_, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{
			Wait: 2 * time.Hour,
			OnWait: func(redlock.Wait) {
				switch told++; told {
				case 500:
					early = heapInUse()
				case 7_000:
					late = heapInUse()
				}
			},
		})
		if !errors.Is(err, redlock.ErrHeld) || late == 0 {
			t.Fatalf("%v, told %d times", err, told)
		}
		if grown := late - early; grown > 4<<20 {
			t.Errorf("the heap grew by %d bytes in 6,500 heartbeats", grown)
		}
		if perSecond := float64(told) / 7200; perSecond < 0.9 || perSecond > 1.1 {
			t.Errorf("told %.1f times a second", perSecond)
		}
	})
}

// TestB94CleanUpIsTracked: thousands of attempts at once that lose leave nothing
// behind, and Close waits for their undo.
func TestB94CleanUpIsTracked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 5, nil)
		for _, n := range s.Nodes {
			n.Delay(5 * time.Millisecond)
		}
		var wg sync.WaitGroup
		for i := range 10_000 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%20)*time.Millisecond)
				defer cancel()
				if l, err := lk.Acquire(ctx, fmt.Sprint(i%5000), nil); err == nil {
					_ = l.Release(ctx)
				}
			})
		}
		wg.Wait()
		if err := lk.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 5000 {
			if got := stored(s, fmt.Sprint(i)); got != 0 {
				t.Fatalf("%d nodes still store name %d", got, i)
			}
		}
	})
}

// TestB94ThousandsWait: of names of their own, which others hold, and of one that all
// want. Nobody meets an error, and neither goroutines nor memory stay.
func TestB94ThousandsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, each = manyCallers, 10
		lk, s := locktest.New(t, 3, nil)
		holder := s.Open(t, nil)
		heap, before := heapInUse(), runtime.NumGoroutine()
		var working sync.WaitGroup
		for i := range callers / each {
			held := acquire(t, holder, fmt.Sprint(i), nil)
			for range each {
				working.Go(func() {
					l, err := lk.Acquire(t.Context(), fmt.Sprint(i), nil)
					if err != nil {
						t.Error(err)
					} else if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			time.AfterFunc(3*time.Second, func() { _ = held.Release(context.Background()) })
		}
		time.Sleep(2*time.Second + 500*time.Millisecond) // between two heartbeats
		if added := runtime.NumGoroutine() - before - callers; added > 3*100 {
			t.Errorf("%d goroutines beside the callers, on three nodes", added)
		}
		if grown := (heapInUse() - heap) / callers; grown > 32<<10 {
			t.Errorf("the heap grew by %d bytes for each that waits", grown)
		}
		working.Wait()
		time.Sleep(10 * time.Second)
		if more := runtime.NumGoroutine() - before; more > 20 {
			t.Errorf("%d goroutines more", more)
		}
		if grown := heapInUse() - heap; grown > 16<<20 {
			t.Errorf("the heap grew by %d bytes", grown)
		}
		for _, n := range s.Nodes {
			for _, key := range n.Keys() {
				if strings.Contains(key, "{") {
					t.Fatalf("left behind: %q", key)
				}
			}
		}
	})
}

// TestB76ContentionAndOutageHaveTheirOwnPatience.
func TestB76ContentionAndOutageHaveTheirOwnPatience(t *testing.T) {
	const connectWait = 3 * time.Second
	for _, c := range []struct {
		contended bool
		wait      time.Duration
		is        error
		after     time.Duration
	}{
		{contended: true, wait: redlock.NoWait, is: redlock.ErrHeld, after: 0},
		{contended: true, wait: time.Minute, is: redlock.ErrHeld, after: time.Minute},
		{contended: false, wait: redlock.NoWait, is: redlock.ErrNoQuorum, after: connectWait},
		{contended: false, wait: time.Minute, is: redlock.ErrNoQuorum, after: connectWait},
		{contended: false, wait: time.Second, is: redlock.ErrNoQuorum, after: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, 3, &redlock.Options{ConnectWait: connectWait})
			acquire(t, s.Open(t, nil), "x", nil)
			if !c.contended {
				for _, n := range s.Nodes[1:] {
					n.Down(true)
					defer n.Down(false)
				}
			}
			start := time.Now()
			_, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: c.wait})
			if took := time.Since(start); !errors.Is(err, c.is) || took < c.after || took > c.after+200*time.Millisecond {
				t.Errorf("%+v: %v after %v", c, err, took)
			}
		})
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestB51EveryEndOfALeaseEndsItsRenewal: released, run out, lost, not released at
// all, failed to be released, or moved: no timer and no goroutine goes on.
func TestB51EveryEndOfALeaseEndsItsRenewal(t *testing.T) {
	ends := map[string]func(*testing.T, *redlock.Locker, *locktest.Service, *redlock.Lease){
		"released": func(t *testing.T, _ *redlock.Locker, _ *locktest.Service, l *redlock.Lease) {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"lost": func(_ *testing.T, _ *redlock.Locker, s *locktest.Service, l *redlock.Lease) {
			for _, n := range s.Nodes {
				n.Delete("redlock:{" + l.Name() + "}")
			}
			<-l.Context().Done()
		},
		"lost and released": func(t *testing.T, _ *redlock.Locker, s *locktest.Service, l *redlock.Lease) {
			for _, n := range s.Nodes {
				n.Delete("redlock:{" + l.Name() + "}")
			}
			<-l.Context().Done()
			if err := l.Release(t.Context()); !errors.Is(err, redlock.ErrLost) {
				t.Error(err)
			}
		},
		"max hold": func(_ *testing.T, _ *redlock.Locker, _ *locktest.Service, l *redlock.Lease) {
			time.Sleep(5 * time.Minute)
			<-l.Context().Done()
		},
		"release failed": func(t *testing.T, _ *redlock.Locker, s *locktest.Service, l *redlock.Lease) {
			for _, n := range s.Nodes {
				n.Freeze()
				defer n.Thaw()
			}
			if err := l.Release(t.Context()); !errors.Is(err, redlock.ErrNoQuorum) || !redlock.MayBeHeld(err) {
				t.Error(err)
			}
		},
		"moved": func(t *testing.T, _ *redlock.Locker, _ *locktest.Service, l *redlock.Lease) {
			if _, err := l.Handle(); err != nil {
				t.Error(err)
			}
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				lk, s := locktest.New(t, 3, &redlock.Options{Observer: func(e redlock.Event) {
					if e.Kind == redlock.EventExtended || e.Kind == redlock.EventExtendFailed {
						calls.Add(1)
					}
				}})
				acquire(t, lk, "still held", nil) // so that the Locker itself is not idle
				before := runtime.NumGoroutine()
				for i := range 200 {
					l := acquire(t, lk, fmt.Sprint("x", i), &redlock.AcquireOptions{MaxHold: 2 * time.Minute})
					end(t, lk, s, l)
					time.Sleep(4 * time.Second) // the other lease is renewed in between
				}
				time.Sleep(time.Minute)
				renewals := calls.Load()
				time.Sleep(time.Minute)
				if n := calls.Load() - renewals; n < 15 || n > 25 {
					t.Errorf("%d renewals in a minute, want those of one lease", n)
				}
				if more := runtime.NumGoroutine() - before; more > 10 {
					t.Errorf("%d goroutines more", more)
				}
			})
		})
	}
}
