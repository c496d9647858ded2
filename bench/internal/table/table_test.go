package table

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/redlock/bench/internal/load"
)

func TestEveryRunOfTheTableCanBeRun(t *testing.T) {
	runs := 0
	for _, s := range sections(time.Second) {
		for _, r := range s.rows {
			for _, c := range r.runs {
				runs++
				if err := c.Check(); err != nil {
					t.Errorf("%s: %s: %s: %v", s.title, r.name, c.Peer, err)
				}
			}
		}
	}
	// A run of 2 s takes about 3 s with its servers and its warm-up, and one on a
	// name with many waiters a little more.
	if took := time.Duration(runs*3*3) * time.Second; took > 10*time.Minute {
		t.Errorf("%d runs take %v in three rounds, more than the ten minutes that people wait for", runs, took)
	}
}

func TestTheDocumentSaysWhatIsSlower(t *testing.T) {
	peers := func(rate, p99 float64) row {
		r := on(time.Second, "1 goroutine", load.Config{Workload: load.Solo, C: 1}, ours, redsync)
		for round := range 3 {
			noise := float64(1 + round)
			r.results[0] = append(r.results[0], load.Result{CyclesPerS: 100 * noise, LockP99Us: 50 * noise})
			r.results[1] = append(r.results[1], load.Result{CyclesPerS: rate * noise, LockP99Us: p99 * noise})
		}
		return r
	}
	faster := document(machine{}, 3, time.Second, []section{{title: "Own names", rows: []row{peers(40, 100)}}})
	if !strings.Contains(faster, "Nowhere in these tables") || !strings.Contains(faster, "**2.50** (2.50–2.50) | **2.00**") {
		t.Errorf("2.5 times the rate at half the p99 gives:\n%s", faster)
	}
	slower := document(machine{}, 3, time.Second, []section{{title: "Own names", rows: []row{peers(200, 25)}}})
	for _, says := range []string{"0.50 times the rate of redsync", "lock p99 2.00 times that of redsync"} {
		if !strings.Contains(slower, says) {
			t.Errorf("does not say %q:\n%s", says, slower)
		}
	}
}

func TestTheFrozenCaseIsComparedWithItself(t *testing.T) {
	r := frozen(time.Second, "1 goroutine", load.Config{Workload: load.Solo, C: 1}, []int{1, 2}, ours, redsync)
	for i := range r.runs {
		k := float64(i % 3)
		r.results[i] = []load.Result{{CyclesPerS: 100 - 20*k, LockP99Us: 100 + 30*k, UnlockP99Us: 100 + 60*k}}
	}
	text := document(machine{}, 1, time.Second, []section{{frozen: true, rows: []row{r}}})
	for _, says := range []string{
		"| **0.80** (0.80–0.80) | **1.30** (1.30–1.30) | **1.60** (1.60–1.60) |",
		"| **0.60** (0.60–0.60) | **1.60** (1.60–1.60) | **2.20** (2.20–2.20) |",
	} {
		if strings.Count(text, says) != 2 {
			t.Errorf("does not say %q of both locks:\n%s", says, text)
		}
	}
}

// TestTablesHaveAsManyFieldsInEachLine: a line with one more would lose it when
// it is shown.
func TestTablesHaveAsManyFieldsInEachLine(t *testing.T) {
	list := sections(time.Second)
	for _, s := range list {
		for _, r := range s.rows {
			for i := range r.results {
				r.results[i] = []load.Result{{CyclesPerS: 1, LockP99Us: 1, UnlockP99Us: 1}}
			}
		}
	}
	fields := 0
	for line := range strings.Lines(document(machine{}, 1, time.Second, list)) {
		n := strings.Count(line, "|")
		if n > 0 && fields > 0 && n != fields {
			t.Errorf("%d fields in place of %d: %s", n, fields, line)
		}
		fields = n
	}
}

func TestMedian(t *testing.T) {
	list := []float64{5, 1, 3}
	if m := median(list); m != 3 || !slices.Equal(list, []float64{5, 1, 3}) {
		t.Errorf("median %v of %v", m, list)
	}
	if m := median([]float64{1, 2, 3, 10}); m != 2.5 {
		t.Errorf("median of four is %v", m)
	}
	if m := median(nil); m != 0 {
		t.Errorf("median of none is %v", m)
	}
}
