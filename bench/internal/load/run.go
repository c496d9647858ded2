package load

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"time"

	"example.com/redlock/bench/internal/hist"
	"example.com/redlock/testkit/faultproxy"
	"example.com/redlock/testkit/redisserver"
)

// Run carries out one run: it starts what c asks for, ends it again, and
// returns what was measured.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.Check(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends workers that still run
	s, err := set(ctx, c)
	if err != nil {
		return Result{}, errors.Join(err, s.stop())
	}
	reports, err := s.measure(ctx)
	if err := errors.Join(err, s.stop()); err != nil {
		return Result{}, err
	}
	return c.result(len(s.urls), reports), nil
}

// scene is what one run needs around its workers.
type scene struct {
	config  Config
	servers []*redisserver.Server
	proxies []*faultproxy.Proxy
	urls    []string // as the workers see the nodes
	arbiter string
	workers []*process
}

// set starts servers, proxies and workers. What it returns is to be stopped
// also after an error.
func set(ctx context.Context, c Config) (*scene, error) {
	s := &scene{config: c, urls: slices.Clone(c.Nodes)}
	if len(s.urls) == 0 {
		for range c.N {
			server, err := redisserver.Start(ctx, redisserver.Options{})
			if err != nil {
				return s, err
			}
			s.servers = append(s.servers, server)
			s.urls = append(s.urls, server.URL())
		}
	}
	if c.Latency > 0 {
		if err := s.delay(); err != nil {
			return s, err
		}
	}
	var err error
	if s.arbiter, err = newArbiterFile(); err != nil {
		return s, err
	}
	run := rand.Text()
	for i := range c.Procs {
		t := task{Config: c, Nodes: s.urls, Own: len(s.servers) > 0, Run: run, Proc: i, Arbiter: s.arbiter}
		w, err := startWorker(ctx, t)
		if err != nil {
			return s, err
		}
		s.workers = append(s.workers, w)
	}
	return s, nil
}

// delay puts a proxy before each node: half of the latency on each way.
func (s *scene) delay() error {
	for i, node := range s.urls {
		u, err := url.Parse(node)
		if err != nil {
			return err
		}
		p, err := faultproxy.Start(u.Host)
		if err != nil {
			return err
		}
		s.proxies = append(s.proxies, p)
		p.SetDelay(faultproxy.ToServer, s.config.Latency/2)
		p.SetDelay(faultproxy.ToClient, s.config.Latency/2)
		u.Host = p.Addr()
		s.urls[i] = u.String()
	}
	return nil
}

// measure lets all workers begin at the same time, once all are warm.
func (s *scene) measure(ctx context.Context) ([]report, error) {
	for _, w := range s.workers {
		if _, err := w.line(); err != nil {
			return nil, err
		}
	}
	for _, server := range s.servers[:s.config.Freeze] {
		if err := server.Freeze(); err != nil {
			return nil, err
		}
	}
	for _, w := range s.workers {
		if _, err := fmt.Fprintln(w.in, "go"); err != nil {
			return nil, err
		}
	}
	var reports []report
	for _, w := range s.workers {
		line, err := w.line()
		if err != nil {
			return nil, err
		}
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	// Nodes come back before the workers say good-bye to them.
	for _, server := range s.servers[:s.config.Freeze] {
		if err := server.Thaw(); err != nil {
			return nil, err
		}
	}
	for _, w := range s.workers {
		if err := w.end(); err != nil {
			return nil, err
		}
	}
	return reports, ctx.Err()
}

func (s *scene) stop() error {
	var errs []error
	for _, w := range s.workers {
		w.kill()
	}
	for _, p := range s.proxies {
		errs = append(errs, p.Close())
	}
	for _, server := range s.servers {
		errs = append(errs, server.Stop())
	}
	if s.arbiter != "" {
		errs = append(errs, os.Remove(s.arbiter))
	}
	return errors.Join(errs...)
}

// process is a worker in a process of its own.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	waited bool
}

func startWorker(ctx context.Context, t task) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, out: bufio.NewReader(out)}
	line, err := json.Marshal(t)
	if err == nil {
		_, err = in.Write(append(line, '\n'))
	}
	if err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

func (p *process) line() ([]byte, error) {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("a worker ended before its time: %w", err)
	}
	return line, nil
}

// endWithin is how long a peer may take to close.
const endWithin = 20 * time.Second

func (p *process) end() error {
	late := time.AfterFunc(endWithin, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	p.waited = true
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// kill ends a worker that has not ended by itself.
func (p *process) kill() {
	if p.waited {
		return
	}
	p.waited = true
	_ = p.cmd.Process.Kill() // it may have ended just now
	_ = p.cmd.Wait()         // killed
}

// result puts together what the workers of all processes reported.
func (c Config) result(nodes int, reports []report) Result {
	var sum report
	for i := range reports {
		sum.add(&reports[i])
	}
	r := Result{
		Peer: c.Peer, Workload: c.Workload, Nodes: nodes, C: c.C, Procs: c.Procs, HoldUs: c.Hold.Microseconds(),
		WorkerMin: slices.Min(sum.Cycles), WorkerMax: slices.Max(sum.Cycles),
		Errors: sum.Errors, Overlaps: sum.Overlaps, FirstError: sum.FirstError,
	}
	cycles := int64(0)
	for _, n := range sum.Cycles {
		cycles += n
	}
	r.CyclesPerS = float64(int64(float64(cycles)/c.Duration.Seconds()*10)) / 10
	for _, p := range []struct {
		to      *float64
		from    *hist.Hist
		percent float64
	}{
		{&r.LockP50Us, &sum.Lock, 50}, {&r.LockP99Us, &sum.Lock, 99},
		{&r.UnlockP50Us, &sum.Unlock, 50}, {&r.UnlockP99Us, &sum.Unlock, 99},
	} {
		*p.to = micros(p.from.Percentile(p.percent))
	}
	r.LockMaxUs = micros(sum.Lock.Max())
	return r
}
