//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/redlock/testkit/redisserver"
	"go.uber.org/goleak"
)

// The tests run the real binary, built once, against real servers. They are for
// Linux: the states of processes are read from /proc.
var (
	binary     string
	buildFlags []string
	nodes      []string // the URLs of five servers for tests that do not harm them
)

// helperEnv makes the test binary one of the commands that redlock runs in the
// tests. It does not begin with REDLOCK_, which would not reach the command.
const helperEnv = "CLI_TEST_HELPER"

func TestMain(m *testing.M) {
	if helper := os.Getenv(helperEnv); helper != "" {
		runHelper(helper)
		return
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "redlock-cli-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "redlock")
	build := exec.Command("go", append(append([]string{"build"}, buildFlags...), "-o", binary, ".")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	for range 5 {
		s, err := redisserver.Start(context.Background(), redisserver.Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err, "(`make test` installs redis-server)")
			return 1
		}
		defer s.Stop()
		nodes = append(nodes, s.URL())
	}
	if out, err := exec.Command(binary, "init", "--nodes", strings.Join(nodes, ",")).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "init: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if code == 0 {
		// The servers are still up: their keepers are no leak.
		if err := goleak.Find(goleak.IgnoreAnyFunction("example.com/redlock/testkit/redisserver.spawn.func1")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// process is a redlock that was started by a test.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *buffer
	done   chan struct{}
}

// buffer is a bytes.Buffer that can be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// command returns a redlock that is about to be started, in an empty directory
// and with the shared servers as its nodes. Variables in env beat those.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=/", "REDLOCK_NODES=" + strings.Join(nodes, ","),
		"GORACE=atexit_sleep_ms=0", // the race detector's own wait, a second for each process
	}, env...)
	return cmd
}

// start starts a redlock. It is killed at the end of the test if it still runs.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startEnv(t, nil, args...)
}

func startEnv(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startCommand(t, command(t, env, args...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	return startWith(t, cmd, nil)
}

// startWith starts cmd with the given standard error, or one that is kept.
func startWith(t *testing.T, cmd *exec.Cmd, stderr *os.File) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stderr: &buffer{}, done: make(chan struct{})}
	cmd.Stderr = p.stderr
	if stderr != nil {
		cmd.Stderr = stderr
	}
	// A pipe of our own: that of exec would be closed by Wait before it is read.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	p.stdout = bufio.NewReader(r)
	// A command that outlives redlock keeps stderr open.
	cmd.WaitDelay = 100 * time.Millisecond
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
		r.Close()
		if t.Failed() {
			t.Logf("stderr of %q:\n%s", cmd.Args[1:], p.stderr)
		}
	})
	return p
}

// patience is for what should happen at once, on a machine that is busy.
const patience = 20 * time.Second

// line returns the next line that the process, or its command, prints.
func (p *process) line() string {
	p.t.Helper()
	type read struct {
		line string
		err  error
	}
	lines := make(chan read, 1)
	go func() {
		line, err := p.stdout.ReadString('\n')
		lines <- read{strings.TrimSuffix(line, "\n"), err}
	}()
	select {
	case r := <-lines:
		if r.err != nil {
			p.t.Fatalf("no line on stdout: %v; stderr:\n%s", r.err, p.stderr)
		}
		return r.line
	case <-time.After(patience):
		p.t.Fatalf("no line on stdout within %v; stderr:\n%s", patience, p.stderr)
		return ""
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%q still runs after %v; stderr:\n%s", p.cmd.Args[1:], patience, p.stderr)
		return -1
	}
}

func (p *process) wantExit(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Fatalf("%q: exit %d, want %d; stderr:\n%s", p.cmd.Args[1:], got, code, p.stderr)
	}
}

// rest returns what is left on stdout.
func (p *process) rest() string {
	b, _ := io.ReadAll(p.stdout)
	return string(b)
}

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// result is what a redlock that has ended left.
type result struct {
	code           int
	stdout, stderr string
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	return runEnv(t, nil, args...)
}

func runEnv(t *testing.T, env []string, args ...string) result {
	t.Helper()
	p := startEnv(t, env, args...)
	code := p.wait()
	return result{code, p.rest(), p.stderr.String()}
}

func (r result) want(t *testing.T, code int, stdout string) {
	t.Helper()
	if r.code != code || r.stdout != stdout {
		t.Fatalf("exit %d with %q, want %d with %q; stderr:\n%s", r.code, r.stdout, code, stdout, r.stderr)
	}
}

// event is a line that run --json writes to stderr.
type event struct {
	Time        time.Time `json:"time"`
	Event       string    `json:"event"`
	Name        string    `json:"name"`
	Token       uint64    `json:"token"`
	PID         int       `json:"pid"`
	Code        int       `json:"code"`
	Because     string    `json:"because"`
	GraceMS     int64     `json:"grace_ms"`
	RemainingMS int64     `json:"remaining_ms"`
	WaitMS      int64     `json:"wait_ms"`
}

// events returns the events so far.
func (p *process) events() []event {
	p.t.Helper()
	var events []event
	for line := range strings.Lines(p.stderr.String()) {
		if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "\n") {
			continue // the command's own, or still being written
		}
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Event == "" {
			p.t.Fatalf("not an event: %s (%v)", line, err)
		}
		events = append(events, e)
	}
	return events
}

// event returns the first event of a kind, and whether there was one.
func (p *process) event(kind string) (event, bool) {
	p.t.Helper()
	for _, e := range p.events() {
		if e.Event == kind {
			return e, true
		}
	}
	return event{}, false
}

var lockNames atomic.Int64

// lockName returns a name that no other test uses, nor an earlier run of this
// one, whose holder may have been killed.
func lockName(t *testing.T) string {
	return fmt.Sprintf("%s.%d", t.Name(), lockNames.Add(1))
}

// redisDo sends a command to a server and returns the first line of the reply,
// or the number of elements of an array.
func redisDo(t *testing.T, url string, args ...string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "redis://"), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// heldOn counts the nodes that have a key for the lock.
func heldOn(t *testing.T, urls []string, name string) int {
	t.Helper()
	n := 0
	for _, url := range urls {
		if redisDo(t, url, "EXISTS", "redlock:{"+name+"}") == ":1" {
			n++
		}
	}
	return n
}

// alive tells whether a process lives that is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	// The state follows the name, which may hold anything, in parentheses.
	_, after, _ := strings.Cut(string(stat[max(strings.LastIndexByte(string(stat), ')'), 0):]), " ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// stopped tells whether a process is stopped.
func stopped(pid int) bool {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(stat[max(strings.LastIndexByte(string(stat), ')'), 0):]), " ")
	return strings.HasPrefix(after, "T")
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
