package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/redlock"
)

// TestSoakCycles: after Release and the undo in the background no key is on any
// node, and none comes back: with leases so short that renewals, ends and
// releases are always in each other's way. The whole of it runs with
// REDLOCK_SOAK=1.
func TestSoakCycles(t *testing.T) {
	const ttl, parallel, names = 300 * time.Millisecond, 200, 150
	cycles := 2000
	if os.Getenv("REDLOCK_SOAK") == "1" {
		cycles = 50_000
	}
	ns := start(t, 5)
	lk := ns.open(&redlock.Options{TTL: ttl})
	var held [names]tenures
	var lost atomic.Int64
	inParallel(parallel, cycles, func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		name := rand.N(names)
		l, err := lk.Acquire(ctx, fmt.Sprint("x", name), nil)
		if err != nil {
			t.Error(err)
			return
		}
		held[name].work(l, fmt.Sprint("cycle ", i), 80*time.Millisecond+rand.N(40*time.Millisecond))
		if err := l.Release(ctx); err != nil {
			is(t, err, []error{redlock.ErrLost})
			lost.Add(1)
		}
	})
	for name := range held {
		held[name].check(t)
	}
	t.Logf("%d cycles, %d leases lost", cycles, lost.Load())
	ns.empty(undone, ns.all()...)
	// What comes back does so within the life of a lease.
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
		for _, i := range ns.all() {
			if keys := ns.leases(i); len(keys) > 0 {
				t.Fatalf("node %d: %v came back", i+1, keys)
			}
		}
	}
	if lost.Load() > int64(cycles/100) {
		t.Errorf("%d of %d leases were lost with all nodes well", lost.Load(), cycles)
	}
}

// TestTenThousandCallers: each takes a name of its own, with default options.
// What the library adds to the callers' goroutines grows with the nodes alone.
func TestTenThousandCallers(t *testing.T) {
	const callers, n = 10_000, 5
	// A call may run for each batch under way on a node, the connection has a few
	// of its own, and a timer that fires is one for a moment.
	const perNode = 100
	ns := start(t, n)
	lk := openAsIs(t, ns.urls(), &redlock.Options{})
	warm(t, lk)
	ns.empty(undone, ns.all()...)
	before := runtime.NumGoroutine()
	var begun, working, ended sync.WaitGroup
	leave := make(chan struct{})
	begun.Add(1)
	for i := range callers {
		working.Add(1)
		ended.Go(func() {
			begun.Wait()
			l, err := lk.Acquire(context.Background(), fmt.Sprint("x", i), nil)
			if err != nil {
				t.Error(err)
			} else if err := l.Release(context.Background()); err != nil {
				t.Error(err)
			}
			working.Done()
			<-leave // so that the number of callers stays what it is
		})
	}
	done := make(chan struct{})
	var watcher sync.WaitGroup
	most := 0
	watcher.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				most = max(most, runtime.NumGoroutine()-before-callers-1)
			}
		}
	})
	began := time.Now()
	begun.Done()
	working.Wait()
	took := time.Since(began)
	close(done)
	watcher.Wait()
	close(leave)
	ended.Wait()
	t.Logf("%d callers in %v; at most %d goroutines of the library", callers, took, most)
	if most > perNode*n {
		t.Errorf("the library added %d goroutines for %d nodes", most, n)
	}
	ns.empty(undone, ns.all()...)
}
