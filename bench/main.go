// Command bench measures distributed locks, this project's and others', under
// the same loads on the same servers. It prints one line of JSON for a run:
//
//	go run ./bench -peer redlock -workload hot -c 8 -procs 4 -hold 1ms -json
//
// or runs the whole table and writes it as a document:
//
//	go run ./bench -table docs/benchmarks.md
//
// Without -nodes it starts redis-server processes of its own and ends them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"example.com/redlock/bench/internal/load"
	"example.com/redlock/bench/internal/table"
)

func main() {
	if load.IsWorker() {
		os.Exit(load.Work())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 64
)

type arguments struct {
	config load.Config
	json   bool
	table  string
	rounds int
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a, err := parse(args, stderr)
	if err == flag.ErrHelp {
		return 0
	}
	if err == nil && a.table == "" {
		err = a.config.Check()
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	if a.table != "" {
		err = table.Write(ctx, a.table, a.rounds, a.config.Duration, stderr)
	} else {
		err = one(ctx, a, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return 0
}

func parse(args []string, stderr io.Writer) (arguments, error) {
	var a arguments
	c := &a.config
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.Peer, "peer", "redlock", "`lock` to measure: redlock, redsync, redsync-failfast, raw; naive locks nothing")
	f.StringVar(&c.Workload, "workload", load.Solo, "solo (own names for each goroutine) or hot (one name for all)")
	nodes := f.String("nodes", "", "`URLs` of the nodes, with commas; default: servers of its own")
	f.IntVar(&c.N, "n", 5, "number of own servers")
	f.IntVar(&c.C, "c", 1, "goroutines in each process")
	f.IntVar(&c.Procs, "procs", 1, "processes")
	f.DurationVar(&c.Hold, "hold", -1, "time a lock is held (default 1ms for hot, 0 for solo)")
	f.IntVar(&c.Batch, "batch", 1, "locks that raw takes with one call")
	f.IntVar(&c.Freeze, "freeze", 0, "own servers that are stopped, with SIGSTOP, during the measurement")
	f.DurationVar(&c.Latency, "latency", 0, "time added to each round trip to a node")
	f.DurationVar(&c.Duration, "d", 0, "time of the measurement (default 4s; for each run of the table 2s)")
	f.BoolVar(&a.json, "json", false, "print one line of JSON")
	f.StringVar(&a.table, "table", "", "run the whole table and write it to `FILE`; of the other flags, -rounds and -d count")
	f.IntVar(&a.rounds, "rounds", 3, "rounds of the table")
	if err := f.Parse(args); err != nil {
		return a, err
	}
	if f.NArg() > 0 {
		return a, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if *nodes != "" {
		c.Nodes = strings.Split(*nodes, ",")
	}
	if c.Duration == 0 {
		c.Duration = 4 * time.Second
		if a.table != "" {
			c.Duration = 2 * time.Second
		}
	}
	if a.rounds < 1 {
		return a, fmt.Errorf("%d rounds", a.rounds)
	}
	return a, nil
}

// one carries out one run and prints its result.
func one(ctx context.Context, a arguments, stdout, stderr io.Writer) error {
	r, err := load.Run(ctx, a.config)
	if err != nil {
		return err
	}
	if r.Errors > 0 {
		fmt.Fprintf(stderr, "bench: %d errors, the first: %s\n", r.Errors, r.FirstError)
	}
	if a.json {
		_, err = fmt.Fprintln(stdout, r.JSON())
		return err
	}
	text := strings.NewReplacer(`{`, "", `}`, "", `"`, "", ":", " ", ",", "\n").Replace(r.JSON())
	_, err = fmt.Fprintln(stdout, text)
	return err
}
