package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"example.com/redlock/bench/internal/hist"
	"example.com/redlock/bench/internal/peers"
)

// workerEnv makes a process a worker: the program starts itself again with it.
const workerEnv = "REDLOCK_BENCH_WORKER"

// task is what a worker is told, as the first line of its standard input.
type task struct {
	Config Config
	Nodes  []string
	Own    bool
	// Run makes the names of this run its own, and Proc those of this process.
	Run  string
	Proc int
	// Arbiter is the file in which holders are counted.
	Arbiter string
}

// report is what a worker found, as the last line of its standard output.
type report struct {
	Cycles       []int64 // by goroutine
	Lock, Unlock hist.Hist
	Errors       int64
	FirstError   string
	Overlaps     int64
}

// IsWorker tells whether this process was started to be a worker. Then it is to
// do nothing but exit with what Work returns.
func IsWorker() bool { return os.Getenv(workerEnv) != "" }

// Work carries out one task: it warms up, says so with an empty line, waits for
// a line that says go, measures, and reports. It ends at once when its standard
// input does, so that it does not outlive who started it.
func Work() int {
	if err := work(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench worker:", err)
		return 1
	}
	return 0
}

func work(in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	var t task
	if err := json.Unmarshal(line, &t); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := newWorker(ctx, t)
	if err != nil {
		return err
	}
	w.warmUp(ctx)
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if _, err := r.ReadBytes('\n'); err != nil {
		return err
	}
	go func() {
		if _, err := r.ReadByte(); err != nil {
			cancel()
		}
	}()
	found, err := json.Marshal(w.measure(ctx))
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s\n", found); err != nil {
		return err
	}
	return w.close()
}

type worker struct {
	task
	peer    peers.Peer
	arbiter *arbiter
}

// openWithin bounds what a peer may need to begin.
const openWithin = 20 * time.Second

func newWorker(ctx context.Context, t task) (*worker, error) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	a, err := openArbiter(t.Arbiter)
	if err != nil {
		return nil, err
	}
	p, err := peers.Open(ctx, t.Config.Peer, peers.Settings{
		Nodes: t.Nodes, Own: t.Own, Goroutines: t.Config.C, Latency: t.Config.Latency,
	})
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return &worker{t, p, a}, nil
}

func (w *worker) close() error { return errors.Join(w.peer.Close(), w.arbiter.close()) }

// warmUpFor is how long connections are opened and caches filled, with names
// that nobody contends for.
const warmUpFor = 300 * time.Millisecond

func (w *worker) warmUp(ctx context.Context) {
	w.all(ctx, warmUpFor, func(ctx context.Context, g int, r *report) {
		w.cycle(ctx, w.names("warm-up", g), 0, nil, r)
	})
}

func (w *worker) measure(ctx context.Context) report {
	c := w.Config
	shared := []string{w.name("hot", 0)}
	return w.all(ctx, c.Duration, func(ctx context.Context, g int, r *report) {
		if c.Workload == Hot {
			w.cycle(ctx, shared, c.Hold, w.arbiter, r)
		} else {
			w.cycle(ctx, w.names("solo", g), c.Hold, nil, r)
		}
	})
}

// all runs cycle in all goroutines, again and again for the given time, and
// puts together what they found.
func (w *worker) all(ctx context.Context, d time.Duration, cycle func(context.Context, int, *report)) report {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	parts := make([]report, w.Config.C)
	var wg sync.WaitGroup
	for g := range parts {
		parts[g].Cycles = make([]int64, 1)
		wg.Go(func() {
			for ctx.Err() == nil {
				cycle(ctx, g, &parts[g])
			}
		})
	}
	wg.Wait()
	var sum report
	for i := range parts {
		sum.add(&parts[i])
	}
	return sum
}

func (r *report) add(part *report) {
	r.Cycles = append(r.Cycles, part.Cycles...)
	r.Lock.Merge(&part.Lock)
	r.Unlock.Merge(&part.Unlock)
	r.Errors += part.Errors
	r.Overlaps += part.Overlaps
	if r.FirstError == "" {
		r.FirstError = part.FirstError
	}
}

const (
	// errorPause keeps a peer that fails at once from failing a million times.
	errorPause = time.Millisecond
	// unlockWithin bounds an unlock for which a peer has no bound of its own.
	unlockWithin = 10 * time.Second
)

// cycle takes, holds and gives back one lock, or one batch. ctx ends with the
// run; what it cuts off is no error, and no cycle.
func (w *worker) cycle(ctx context.Context, names []string, hold time.Duration, a *arbiter, r *report) {
	asked := time.Now()
	unlock, err := w.peer.Lock(ctx, names)
	held := time.Now()
	if err != nil {
		if ctx.Err() != nil {
			r.Lock.AtLeast(held.Sub(asked))
			return
		}
		r.failed(err)
		time.Sleep(errorPause)
		return
	}
	if a != nil && a.enter() {
		r.Overlaps++
	}
	if hold > 0 {
		time.Sleep(hold)
	}
	if a != nil {
		a.leave()
	}
	unlockCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockWithin)
	defer cancel()
	giving := time.Now()
	err = unlock(unlockCtx)
	r.Lock.Add(held.Sub(asked))
	if err != nil {
		r.failed(err)
		return
	}
	r.Unlock.Add(time.Since(giving))
	r.Cycles[0] += int64(len(names))
}

func (r *report) failed(err error) {
	r.Errors++
	if r.FirstError == "" {
		r.FirstError = err.Error()
	}
}

// names are those of goroutine g, as many as a batch has.
func (w *worker) names(kind string, g int) []string {
	names := make([]string, w.Config.Batch)
	for i := range names {
		names[i] = w.name(fmt.Sprintf("%s/%d/%d", kind, w.Proc, g), i)
	}
	return names
}

func (w *worker) name(kind string, i int) string {
	return fmt.Sprintf("bench/%s/%s/%d", w.Run, kind, i)
}
