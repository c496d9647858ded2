package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/redlock"
)

// sample is what a run of lock and unlock has measured.
type sample struct {
	lock, unlock []time.Duration
	took         time.Duration
	errors       int
}

// cycle runs n cycles of lock and unlock in c goroutines, each with its own name.
func cycle(b *testing.B, lk *redlock.Locker, c, n int) *sample {
	b.Helper()
	s := &sample{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for g := range c {
		wg.Go(func() {
			name := fmt.Sprint("bench/", g)
			var lock, unlock []time.Duration
			errors := 0
			for i := g; i < n; i += c {
				begun := time.Now()
				l, err := lk.Acquire(context.Background(), name, nil)
				if err != nil {
					b.Error(err)
					return
				}
				locked := time.Now()
				if err := l.Release(context.Background()); err != nil {
					// Where the machine stands still for a node timeout, two frozen
					// nodes are no minority any more.
					b.Log(err)
					errors++
				}
				lock, unlock = append(lock, locked.Sub(begun)), append(unlock, time.Since(locked))
			}
			mu.Lock()
			s.lock, s.unlock = append(s.lock, lock...), append(s.unlock, unlock...)
			s.errors += errors
			mu.Unlock()
		})
	}
	wg.Wait()
	s.took = time.Since(began)
	slices.Sort(s.lock)
	slices.Sort(s.unlock)
	return s
}

// micros is a percentile in microseconds.
func micros(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[(len(sorted)-1)*percent/100]) / float64(time.Microsecond)
}

func (s *sample) report(b *testing.B, prefix string) {
	b.ReportMetric(float64(s.errors), prefix+"errors")
	b.ReportMetric(micros(s.lock, 50), prefix+"lock-p50-µs")
	b.ReportMetric(micros(s.lock, 99), prefix+"lock-p99-µs")
	b.ReportMetric(micros(s.unlock, 50), prefix+"unlock-p50-µs")
	b.ReportMetric(micros(s.unlock, 99), prefix+"unlock-p99-µs")
}

// BenchmarkFrozen compares five healthy nodes with the same five, two of them
// frozen. The two kinds of run alternate, so that what else the machine does
// falls on both.
func BenchmarkFrozen(b *testing.B) {
	for _, c := range []int{1, 16} {
		b.Run(fmt.Sprintf("c=%d", c), func(b *testing.B) {
			const turns, perTurn = 6, 1500
			ns := start(b, 5)
			lk := openAsIs(b, ns.urls(), &redlock.Options{})
			warm(b, lk)
			cycle(b, lk, c, perTurn)
			var healthy, frozen sample
			b.ResetTimer()
			for b.Loop() {
				for range turns {
					healthy.add(cycle(b, lk, c, perTurn))
					ns.freeze(3, 4)
					frozen.add(cycle(b, lk, c, perTurn))
					ns.thaw(3, 4)
					cycle(b, lk, c, perTurn/10) // back to health
				}
			}
			healthy.report(b, "healthy-")
			frozen.report(b, "frozen-")
			b.ReportMetric(micros(frozen.lock, 99)/micros(healthy.lock, 99), "lock-p99-ratio")
			b.ReportMetric(micros(frozen.unlock, 99)/micros(healthy.unlock, 99), "unlock-p99-ratio")
		})
	}
}

func (s *sample) add(more *sample) {
	s.lock, s.unlock = append(s.lock, more.lock...), append(s.unlock, more.unlock...)
	s.took += more.took
	s.errors += more.errors
	slices.Sort(s.lock)
	slices.Sort(s.unlock)
}

// BenchmarkSolo is the rate of lock and unlock on five nodes, without contention.
func BenchmarkSolo(b *testing.B) {
	for _, c := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("c=%d", c), func(b *testing.B) {
			ns := start(b, 5)
			lk := openAsIs(b, ns.urls(), &redlock.Options{})
			warm(b, lk)
			b.ResetTimer()
			s := cycle(b, lk, c, b.N)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/s.took.Seconds(), "cycles/s")
			s.report(b, "")
		})
	}
}
