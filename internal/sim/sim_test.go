package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	simSeed   = flag.Uint64("sim.seed", 0, "run from this seed on, instead of the fixed ones")
	simSeeds  = flag.Uint64("sim.seeds", 0, "how many seeds to run; 1 if only -sim.seed is given, and then TestSim writes down what happens")
	simScript = flag.String("sim.script", "", "run this script instead of the one drawn from -sim.seed")
)

// seedRange returns the seeds that the flags ask for, or the fixed ones: the
// first count.
func seedRange(count uint64) (from, n uint64, fixed bool) {
	if *simSeed == 0 && *simSeeds == 0 {
		return 1, count, true
	}
	return *simSeed, max(*simSeeds, 1), false
}

// gateSeeds is how many seeds must pass before a change is merged.
const gateSeeds = 2000

// TestSim runs the fixed seeds, or those that the flags ask for:
//
//	make sim
//	make sim SEED=17
//	make sim SEED=17 SCRIPT='freeze(n1)@1s'
//	make sim SEED=10000 SEEDS=5000
func TestSim(t *testing.T) {
	first, count, fixed := seedRange(gateSeeds / raceFactor)
	if count == 1 {
		runOne(t, first)
		return
	}
	counts := runSeeds(t, first, count)
	if fixed && count == gateSeeds && !t.Failed() {
		expectAll(t, counts)
	}
}

// TestSoakSim runs many more seeds, and must keep up a pace at which they are
// worth it.
func TestSoakSim(t *testing.T) {
	if os.Getenv("REDLOCK_SOAK") == "" {
		t.Skip("takes minutes: set REDLOCK_SOAK=1")
	}
	const seeds, perMinute = 20_000, 1_000
	began := time.Now()
	counts := runSeeds(t, 1_000_000, seeds)
	rate := seeds / time.Since(began).Minutes()
	t.Logf("%.0f seeds a minute", rate)
	if rate < perMinute/raceFactor {
		t.Errorf("%.0f seeds a minute are too few", rate)
	}
	expectAll(t, counts)
}

// TestSoakShell and TestSoakWalk run many more seeds of TestShell and TestWalk.
func TestSoakShell(t *testing.T) {
	if os.Getenv("REDLOCK_SOAK") == "" {
		t.Skip("takes minutes: set REDLOCK_SOAK=1")
	}
	runShells(t, 1_000_000, 5000/raceFactor)
}

func TestSoakWalk(t *testing.T) {
	if os.Getenv("REDLOCK_SOAK") == "" {
		t.Skip("takes minutes: set REDLOCK_SOAK=1")
	}
	runWalks(t, 1_000_000, 1_000_000/raceFactor)
}

// runOne runs one seed and writes down what happens.
func runOne(t *testing.T, seed uint64) {
	c := Draw(seed)
	script := DrawScript(c)
	if *simScript != "" {
		var err error
		if script, err = Parse(*simScript); err != nil {
			t.Fatal(err)
		}
	}
	r := Run(c, script, t.Output())
	reportRun(t, r)
	t.Logf("%v\nscript: %v\n%v", c, script, r.Counts)
}

// runSeeds runs seeds on all processors and stops after the first that fails.
func runSeeds(t *testing.T, first, count uint64) *Counts {
	t.Helper()
	total := newCounts()
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		next    atomic.Uint64
		failed  atomic.Bool
		longest float64
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < count && !failed.Load(); i = next.Add(1) - 1 {
				c := Draw(first + i)
				r := Run(c, DrawScript(c), nil)
				mu.Lock()
				total.Add(r.Counts)
				longest = max(longest, r.Progress.Seconds()/c.Patience(r.Script).Seconds())
				if reportRun(t, r) {
					failed.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("progress took at most %.2f of the time it may take\n%v", longest, total)
	return total
}

// reportRun fails t with what went wrong in a run and how to run it again.
func reportRun(t *testing.T, r *Result) (failed bool) {
	t.Helper()
	failures := r.Failures
	if r.Sound {
		failures = append(failures, checkLinearizable(r.History)...)
	}
	for i, f := range failures {
		if i < 5 {
			t.Errorf("seed %d failed: %s", r.Config.Seed, f)
		}
	}
	if len(failures) > 0 {
		t.Logf("%v\nmake sim SEED=%d SCRIPT='%v'", r.Config, r.Config.Seed, r.Script)
	}
	return len(failures) > 0
}

func TestRunsRepeat(t *testing.T) {
	for seed := range uint64(20) {
		c := Draw(seed)
		one, two := Run(c, DrawScript(c), nil), Run(c, DrawScript(c), nil)
		if one.Events != two.Events || fmt.Sprint(one.Counts) != fmt.Sprint(two.Counts) || len(one.History) != len(two.History) {
			t.Errorf("seed %d: two runs differ: %d and %d events", seed, one.Events, two.Events)
		}
	}
}
