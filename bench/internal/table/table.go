// Package table runs the benchmark's whole table, each peer beside this project
// in the same run, and writes it as a document.
package table

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"example.com/redlock/bench/internal/load"
)

// section is one table of the document.
type section struct {
	title, text string
	// frozen compares this project with itself, not with its peers.
	frozen bool
	rows   []row
}

// row is one load, and the runs that are compared under it.
type row struct {
	name string
	runs []load.Config
	// results are those of runs, by run and round.
	results [][]load.Result
}

const (
	ours            = "redlock"
	raw             = "raw"
	redsync         = "redsync"
	redsyncFailfast = "redsync-failfast"
	nodes           = 5
	rtt             = 20 * time.Millisecond
)

// sections is what the table has, for runs of length d.
func sections(d time.Duration) []section {
	all := []string{ours, redsync, redsyncFailfast, raw}
	locks := all[:3]
	batch := load.Config{Peer: raw, Workload: load.Solo, C: 4, Batch: 64}
	return []section{
		{
			title: "Own names",
			text: "Each goroutine locks and unlocks names of its own and holds them for no time: what a lock costs " +
				"where nobody is in the way.",
			rows: []row{
				on(d, "1 goroutine", load.Config{Workload: load.Solo, C: 1}, all...),
				on(d, "16 goroutines", load.Config{Workload: load.Solo, C: 16}, all...),
				on(d, "128 goroutines", load.Config{Workload: load.Solo, C: 128}, all...),
				on(d, "4 processes × 8 goroutines", load.Config{Workload: load.Solo, C: 8, Procs: 4}, locks...),
				plain(d, "64 locks a call, 4 goroutines", batch),
			},
		},
		{
			title: "One name for all",
			text: "All goroutines want the same name and hold it for 1 ms. Fewest and most are the locks that the " +
				"least and the most successful goroutine got in one run.",
			rows: []row{
				on(d, "8 goroutines", load.Config{Workload: load.Hot, C: 8, Hold: time.Millisecond}, locks...),
				on(d, "4 processes × 8 goroutines", load.Config{Workload: load.Hot, C: 8, Procs: 4, Hold: time.Millisecond}, locks...),
			},
		},
		{
			title: "Nodes 20 ms away",
			text:  "Own names, with 20 ms added to each round trip by a proxy, which also takes its share of the processors.",
			rows: []row{
				on(d, "1 goroutine", load.Config{Workload: load.Solo, C: 1, Latency: rtt}, all...),
				on(d, "128 goroutines", load.Config{Workload: load.Solo, C: 128, Latency: rtt}, all...),
			},
		},
		{
			title: "Two of five nodes frozen", frozen: true,
			text: "Own names; two servers are stopped (SIGSTOP) at the moment the measurement begins. " +
				"The ratios are to the same load with all five alive, run beside it: wanted is at most 1.5 for the p99 " +
				"of lock and of unlock.",
			rows: []row{
				frozen(d, "1 goroutine", load.Config{Workload: load.Solo, C: 1}, []int{2}, ours, redsyncFailfast, redsync),
				frozen(d, "16 goroutines", load.Config{Workload: load.Solo, C: 16}, []int{2}, ours, redsyncFailfast, redsync),
			},
		},
		{
			title: "One name for all, one or two of five nodes frozen", frozen: true,
			text: "All goroutines want the same name and hold it for 1 ms; they wait in line. Wanted is at least half of " +
				"the rate with all five alive.",
			rows: []row{
				frozen(d, "8 goroutines", load.Config{Workload: load.Hot, C: 8, Hold: time.Millisecond}, []int{1, 2}, ours),
				frozen(d, "4 processes × 8 goroutines",
					load.Config{Workload: load.Hot, C: 8, Procs: 4, Hold: time.Millisecond}, []int{1, 2}, ours),
			},
		},
	}
}

// plain is a row of runs as they are given.
func plain(d time.Duration, name string, runs ...load.Config) row {
	for i := range runs {
		c := &runs[i]
		c.N, c.Procs, c.Batch, c.Duration = nodes, max(1, c.Procs), max(1, c.Batch), d
	}
	return row{name: name, runs: runs, results: make([][]load.Result, len(runs))}
}

// on is a row of one load on several peers.
func on(d time.Duration, name string, c load.Config, peers ...string) row {
	var runs []load.Config
	for _, p := range peers {
		c.Peer = p
		runs = append(runs, c)
	}
	return plain(d, name, runs...)
}

// frozen is a row that compares, for each peer, no frozen node with so many.
func frozen(d time.Duration, name string, c load.Config, many []int, peers ...string) row {
	var runs []load.Config
	for _, c.Peer = range peers {
		for _, c.Freeze = range append([]int{0}, many...) {
			runs = append(runs, c)
		}
	}
	return plain(d, name, runs...)
}

// Write runs the table, each run for d, and writes it to the file at path. The
// runs of one row follow each other in each round, so that what else the machine
// does falls on all of them. Progress goes to progress.
func Write(ctx context.Context, path string, rounds int, d time.Duration, progress io.Writer) error {
	m, err := thisMachine(ctx)
	if err != nil {
		return err
	}
	list := sections(d)
	began := time.Now()
	for round := range rounds {
		for _, s := range list {
			for _, r := range s.rows {
				fmt.Fprintf(progress, "%4.0f s  round %d of %d: %s: %s\n",
					time.Since(began).Seconds(), round+1, rounds, s.title, r.name)
				if err := r.run(ctx); err != nil {
					return fmt.Errorf("%s: %s: %w", s.title, r.name, err)
				}
			}
		}
	}
	m.loadAfter = loadAverage()
	return os.WriteFile(path, []byte(document(m, rounds, d, list)), 0o644)
}

// run adds one round of results.
func (r row) run(ctx context.Context) error {
	for i, c := range r.runs {
		result, err := load.Run(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Peer, err)
		}
		r.results[i] = append(r.results[i], result)
	}
	return nil
}
