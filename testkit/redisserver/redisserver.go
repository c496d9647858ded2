// Package redisserver runs real redis-server or valkey-server processes on
// loopback ports: to be killed, frozen and restarted by tests, and for
// `redlock up`.
//
// A server outlives neither an orderly end of the process that started it (if
// that calls Stop) nor, on Linux, its death by any other cause, kill -9
// included. It is in a process group of its own, so that ^C on the terminal
// reaches only the process that started it, which then stops it in its own time.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/redlock/testkit/internal/loopback"
)

// ErrNotInstalled: there is no server binary on PATH.
var ErrNotInstalled = errors.New("redisserver: neither redis-server nor valkey-server is on PATH")

var (
	errPortTaken    = errors.New("the port is taken")
	errClockIgnored = errors.New("the server does not read the clock it was given")
)

const (
	// A free port can be taken by another process before the server binds it.
	portTries = 20
	// An orderly stop of an idle server takes milliseconds, and longer while it
	// saves; after this it is killed.
	stopTimeout = 5 * time.Second
)

// Find returns the path of redis-server, or else of valkey-server, or
// ErrNotInstalled.
func Find() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotInstalled
}

// Options say how to start a server. The zero value is a server without
// persistence on a free port.
type Options struct {
	Port int      // 0: a free one
	Args []string // command line options of the server; they beat the defaults
	Dir  string   // where the server keeps its files; empty: a directory that Stop removes

	// Clock is the server's wall clock, through restarts as well; nil: the
	// machine's.
	Clock Clock
}

// Clock is a wall clock for the servers started with it: a *clockshim.Clock.
type Clock interface {
	// Env is what a process that reads the clock has in its environment.
	Env() []string
	// Loads counts the processes that have begun to read it.
	Loads() int
}

// Server is one server process, or what remains of it after Kill. Its methods
// may be called from any goroutine.
type Server struct {
	binary string
	args   []string
	clock  Clock
	port   int
	dir    string // the server's own files
	runDir string // log and control socket, removed by Stop

	mu      sync.Mutex
	proc    *process
	stopped bool
}

// Start starts a server and returns once it answers. ctx bounds the start
// only. A server that does not come up is an error that quotes its log.
func Start(ctx context.Context, o Options) (*Server, error) {
	binary, err := Find()
	if err != nil {
		return nil, err
	}
	runDir, err := os.MkdirTemp("", "redlock-")
	if err != nil {
		return nil, fmt.Errorf("redisserver: %w", err)
	}
	s := &Server{binary: binary, args: o.Args, clock: o.Clock, port: o.Port, dir: o.Dir, runDir: runDir}
	if s.dir == "" {
		s.dir = runDir
	}
	for range portTries {
		if o.Port == 0 {
			if s.port, err = loopback.FreePort(); err != nil {
				break
			}
		}
		if err = s.launch(ctx); o.Port != 0 || !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		os.RemoveAll(runDir)
		return nil, fmt.Errorf("redisserver: start on port %d: %w", s.port, err)
	}
	return s, nil
}

// Addr returns host:port.
func (s *Server) Addr() string { return loopback.Addr(s.port) }

// URL returns the address in the form that redlock.Open takes.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Pid returns the process id, of the last process if none is alive.
func (s *Server) Pid() int { return s.process().cmd.Process.Pid }

// Alive tells whether the process exists, frozen or not.
func (s *Server) Alive() bool { return s.HowEnded() == "" }

// Ended is closed when the process that runs now has ended, for whatever reason.
func (s *Server) Ended() <-chan struct{} { return s.process().exited }

// HowEnded says how the process ended: "exit status 0", "signal: killed". It is
// empty while it runs.
func (s *Server) HowEnded() string {
	p := s.process()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.String()
	default:
		return ""
	}
}

// Kill ends the process as a power cut would, and returns when it is gone. A
// dead server is no error.
func (s *Server) Kill() error {
	return s.process().kill()
}

// Freeze stops the process without its noticing, like a virtual machine on
// hold: the kernel still accepts connections and data for it. It is an error
// if the server is dead.
func (s *Server) Freeze() error { return s.signal("freeze", sigFreeze) }

// Thaw lets a frozen server go on. It is an error if the server is dead.
func (s *Server) Thaw() error { return s.signal("thaw", sigThaw) }

// Restart starts the server again on the same port, after an orderly end if it
// is alive, and returns once it answers. Its data are gone unless Args made
// them persist. ctx bounds the start only. A stopped server is an error.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("redisserver: restart of %s: it was stopped for good", s.Addr())
	}
	if err := s.proc.terminate(); err != nil {
		return err
	}
	if err := s.launch(ctx); err != nil {
		return fmt.Errorf("redisserver: restart on port %d: %w", s.port, err)
	}
	return nil
}

// Stop ends the server for good, in its own orderly way if it can, and removes
// its temporary directory. Stopping twice, or after Kill, is fine.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return errors.Join(s.proc.terminate(), os.RemoveAll(s.runDir))
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) signal(verb string, sig os.Signal) error {
	if err := s.process().cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("redisserver: %s %s: %w", verb, s.Addr(), err)
	}
	return nil
}

// launch starts the process and waits until it answers. A failure leaves no
// process behind; it is errPortTaken if the port was.
func (s *Server) launch(ctx context.Context) error {
	logPath := filepath.Join(s.runDir, "log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()

	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	loads := 0
	if s.clock != nil {
		loads = s.clock.Loads()
	}
	proc, err := spawn(cmd)
	if err != nil {
		return err
	}
	err = proc.ready(ctx, s.socket())
	// The loader only warns about what it cannot load, and true time looks much
	// like a clock that nobody has moved yet.
	if err == nil && s.clock != nil && s.clock.Loads() == loads {
		err = errClockIgnored
	}
	if err != nil {
		_ = proc.kill() // fails only for a process that is gone
		text, _ := os.ReadFile(logPath)
		if strings.Contains(string(text), "Address already in use") {
			return errPortTaken
		}
		return fmt.Errorf("%w; its log ends:\n%s", err, tail(string(text), 10))
	}
	s.proc = proc
	return nil
}

func (s *Server) command() *exec.Cmd {
	args := []string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(s.port),
		"--save", "",
		"--appendonly", "no",
		"--dir", s.dir,
		"--unixsocket", s.socket(),
	}
	var env []string // nil: ours
	if s.clock != nil {
		env = append(os.Environ(), s.clock.Env()...)
		// The allocator's threads sleep until a time of day, which they take from
		// this clock and the kernel from its own: one that is behind keeps them
		// spinning.
		args = append(args, "--jemalloc-bg-thread", "no")
	}
	cmd := exec.Command(s.binary, append(args, s.args...)...)
	cmd.Env = env
	return cmd
}

// socket is where the server answers its keeper. On the port, another server
// might answer that took it a moment earlier; here, none but ours can.
func (s *Server) socket() string { return filepath.Join(s.runDir, "s") }

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
