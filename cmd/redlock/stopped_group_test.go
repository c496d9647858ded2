//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
)

// A command whose leader is stopped takes redlock along, and with it the
// renewal: what else there is of its group must not work on while somebody else
// holds the lock.
func TestStoppedLeaderStopsItsGroup(t *testing.T) {
	lock := lockName(t)
	env := []string{helperEnv + "=until", "CLI_TEST_FILE=" + filepath.Join(t.TempDir(), "never")}
	p := startEnv(t, env, "run", "--ttl", "1", lock, "sh", "-c", "echo $$; '"+os.Args[0]+"' & wait")
	leader, worker := number(t, p.line()), number(t, p.line())
	if err := syscall.Kill(leader, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await.True(t, patience, "the worker has stopped", func() bool { return stopped(worker) })
	run(t, "run", lock, "true").want(t, 0, "")
	if !stopped(worker) {
		t.Error("the worker went on while somebody else held the lock")
	}
	p.signal(syscall.SIGCONT)
	p.wantExit(79)
	if alive(worker) {
		t.Error("the worker survived")
	}
}

// The lease ended while redlock was stopped, and the command, too: --min-hold
// must not hide the first behind the second.
func TestMinHoldDoesNotHideALoss(t *testing.T) {
	lock := lockName(t)
	end := filepath.Join(t.TempDir(), "end")
	p := startEnv(t, []string{helperEnv + "=until", "CLI_TEST_FILE=" + end},
		"run", "--ttl", "0.6", "--min-hold", "60", lock, os.Args[0])
	child := number(t, p.line())
	p.signal(syscall.SIGSTOP)
	run(t, "run", lock, "true").want(t, 0, "")
	touch(t, end)
	await.True(t, patience, "the command has ended", func() bool { return !alive(child) })
	p.signal(syscall.SIGCONT)
	p.wantExit(79)
}

// Whoever should read redlock's standard error does not: the command is stopped
// in time all the same.
func TestAReaderThatHangsDelaysNothing(t *testing.T) {
	lock := lockName(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fill(t, w)
	cmd := command(t, nil, "run", "-v", "--ttl", "1", lock, "sh", "-c", "echo $$; while :; do sleep 0.01; done")
	child := number(t, startWith(t, cmd, w).line())
	if r := run(t, "break", "--now", lock); r.code != 0 {
		t.Fatal(r)
	}
	await.True(t, 1500*time.Millisecond+patience/10, "the command is gone", func() bool { return !alive(child) })
}

// fill fills a pipe to the last byte.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	fd := int(w.Fd()) // this makes it blocking
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for size := 1 << 16; size > 0; size /= 2 {
		for {
			if _, err := syscall.Write(fd, []byte(strings.Repeat("x", size))); err != nil {
				break
			}
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}

func TestConfigThatIsNoFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "redlock.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	good := writeConfig(t, "nodes: b:2\n")
	c, said, err := configured(t, []string{pipe, good}, nil)
	if err != nil || len(c.Nodes) != 1 || !strings.Contains(said, "no regular file") {
		t.Errorf("%v, %v, said %q", c.Nodes, err, said)
	}
	two := writeConfig(t, "nodes: a:1\n---\nnodes: b:2\n")
	if _, _, err := configured(t, []string{two}, nil); exitCode(err) != 78 {
		t.Errorf("two documents: %v", err)
	}
	if _, _, err := configured(t, []string{good}, nil, "--nodes", ""); exitCode(err) != 78 {
		t.Errorf("--nodes of an unset variable: %v", err)
	}
}
