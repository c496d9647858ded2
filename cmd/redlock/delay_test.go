//go:build linux

package main

import (
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

const (
	// shortDelay is the wait for the shortest max TTL, 2 s.
	shortDelay = 2022 * time.Millisecond
	// delaySlack is for the start of two processes on a machine that is busy.
	delaySlack = 1500 * time.Millisecond
)

// wantDelay checks that a server that is there now was held back for so long.
// begin is the time before the start of redlock.
func wantDelay(t *testing.T, begin time.Time, want time.Duration) {
	t.Helper()
	if took := time.Since(begin); took < want || took > want+delaySlack {
		t.Errorf("started after %v, want %v, and at most %v more", took, want, delaySlack)
	}
}

// The server comes after the delay, as the same process, with everything that
// redlock was given, and its exit code is its own.
func TestDelayStartBecomesTheServer(t *testing.T) {
	// So much more than the max TTL that the start of redlock cannot hide a wait
	// without it.
	drift := writeConfig(t, "drift-rate: 0.3\n")
	cmd := command(t, []string{"REDLOCK_NODES=", "OTHER=kept"}, "delay-start", "--config", drift, "--max-ttl", "2s", "--",
		"sh", "-c", `echo "$$ $0 $1 $OTHER"; cat; exit 7`, "--json", "--")
	cmd.Stdin = strings.NewReader("standard input")
	begin := time.Now()
	p := startCommand(t, cmd)
	got := p.line()
	wantDelay(t, begin, 2602*time.Millisecond)
	if want := fmt.Sprintf("%d --json -- kept", cmd.Process.Pid); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.wantExit(7)
	if rest := p.rest(); rest != "standard input" {
		t.Errorf("%q", rest)
	}
	if text := p.stderr.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "wait=2.602s") || !strings.Contains(text, "because=") {
		t.Errorf("not one line with the wait and the reason: %q", text)
	}
}

// A real server accepts no connection before, and gets signals from then on.
func TestDelayStartOfARealServer(t *testing.T) {
	binary, err := redisserver.Find()
	if err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:" + freePorts(t)
	_, port, _ := strings.Cut(addr, ":")
	begin := time.Now()
	p := start(t, "delay-start", "--max-ttl", "2", binary, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir())
	await.True(t, patience, "the server accepts a connection", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	wantDelay(t, begin, shortDelay)
	if got := redisDo(t, "redis://"+addr, "PING"); got != "+PONG" {
		t.Error(got)
	}
	p.signal(syscall.SIGTERM)
	p.wantExit(0) // as it ends in order: the process that was started is the server
}

func TestDelayStartEndedBySignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		p := start(t, "delay-start", "--max-ttl", "1h", "--", "echo", "started")
		await.True(t, patience, "it waits", func() bool { return strings.Contains(p.stderr.String(), "delaying") })
		begin := time.Now()
		p.signal(sig)
		p.wantExit(128 + int(sig))
		if took := time.Since(begin); took > delaySlack {
			t.Errorf("%v: took %v", sig, took)
		}
		if out := p.rest(); out != "" {
			t.Errorf("%v: it started: %q", sig, out)
		}
	}
}

// What cannot be started is refused before the wait of an hour.
func TestDelayStartRefusesAtOnce(t *testing.T) {
	dir := t.TempDir()
	notExecutable := filepath.Join(dir, "data")
	touch(t, notExecutable)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"/nonexistent"}, 127},
		{[]string{"--", "no-such-command-anywhere"}, 127},
		{[]string{"--", "--max-ttl"}, 127}, // the name of a command
		{[]string{"--", ""}, 127},
		{[]string{notExecutable}, 126},
		{[]string{dir}, 126},
		{nil, 64},
		{[]string{"--"}, 64},
		{[]string{"--nonsense", "true"}, 64},
		{[]string{"--max-ttl", "soon", "true"}, 64},
		{[]string{"--max-ttl", "-1", "true"}, 64},
		{[]string{"--config", "/nonexistent.yaml", "true"}, 78},
	} {
		r := run(t, append([]string{"delay-start", "--max-ttl", "1h"}, c.args...)...)
		if r.code != c.code || r.stdout != "" || !strings.HasPrefix(r.stderr, "redlock: ") || strings.Contains(r.stderr, "delaying") {
			t.Errorf("%q: %+v, want exit %d", c.args, r, c.code)
		}
	}
}

// What only the kernel can tell is found out after the wait, and is no start.
func TestDelayStartOfWhatCannotBeRun(t *testing.T) {
	var started []*process
	codes := map[string]int{"#!/nonexistent\n": 127, "exit 0\n": 126}
	for text := range codes {
		path := filepath.Join(t.TempDir(), "server")
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		started = append(started, start(t, "delay-start", "-q", "--max-ttl", "2", path, text))
	}
	for _, p := range started {
		p.wantExit(codes[p.cmd.Args[len(p.cmd.Args)-1]])
		if text := p.stderr.String(); strings.Count(text, "\n") != 1 || strings.Contains(text, "delaying") {
			t.Errorf("not only the error, with -q: %q", text)
		}
	}
}

func TestStartDelay(t *testing.T) {
	for _, c := range []struct {
		conf config
		want time.Duration
	}{
		{config{}, 30302 * time.Millisecond},
		{config{MaxTTL: seconds(2 * time.Second)}, shortDelay},
		{config{MaxTTL: seconds(10 * time.Second), DriftRate: 0.09, DriftFloor: seconds(time.Second)}, 11900 * time.Millisecond},
		{config{MaxTTL: seconds(24 * time.Hour)}, 24*time.Hour + 864002*time.Millisecond},
		{config{TTL: seconds(time.Second)}, 30302 * time.Millisecond}, // others may use more
	} {
		got, err := c.conf.startDelay()
		if err != nil || (got.wait-c.want).Abs() > time.Microsecond || got.maxTTL > got.wait {
			t.Errorf("%+v: %v, %v; want %v", c.conf, got, err, c.want)
		}
	}
	if d, err := (config{DriftRate: math.NaN()}).startDelay(); err == nil {
		t.Errorf("no number as a drift rate: %v", d)
	}
}

// The file and the flags count as they do for the other commands.
func TestDelayStartIsConfigured(t *testing.T) {
	path := writeConfig(t, "max-ttl: 1h\ndrift-rate: 0.1\n")
	for _, c := range []struct {
		flags []string
		wait  time.Duration
	}{
		{[]string{"--config", path}, 66 * time.Minute},
		{[]string{"--config", path, "--max-ttl", "2h"}, 132 * time.Minute},
	} {
		p := start(t, append(append([]string{"--json", "delay-start"}, c.flags...), "true")...)
		var e event
		await.True(t, patience, "it waits", func() (ok bool) {
			e, ok = p.event("delaying")
			return ok
		})
		if want := c.wait.Milliseconds() + 2; e.WaitMS != want {
			t.Errorf("%q: %d ms, want %d", c.flags, e.WaitMS, want)
		}
		p.signal(syscall.SIGTERM)
		p.wantExit(143)
	}
	for _, text := range []string{"max-ttl: 1.999", "max-ttl: 24h1s", "drift-rate: 0.5", "drift-rate: -0.01", "drift-rate: .nan"} {
		path := writeConfig(t, text+"\n")
		for _, args := range [][]string{{"delay-start", "true"}, {"run", "n", "true"}} {
			if r := run(t, append([]string{"--config", path}, args...)...); r.code != 78 {
				t.Errorf("%s: %q: %+v, want exit 78", text, args, r)
			}
		}
	}
}

func TestDelayStartIsCompleted(t *testing.T) {
	if r := run(t, "__complete", "delay"); !strings.Contains(r.stdout, "delay-start\t") {
		t.Error(r)
	}
	// The path of the server is for the shell to complete.
	if r := run(t, "__complete", "delay-start", "--", "/usr/bin/redis"); !strings.Contains(r.stdout, ":0\n") {
		t.Error(r)
	}
}
