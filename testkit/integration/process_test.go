package integration

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
)

// TestB26AHolderThatWasStopped: the process is stopped for longer than its TTL,
// and somebody else takes the lock. On waking, no call says that it still holds.
func TestB26AHolderThatWasStopped(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	rival := ns.open(nil) // declares the nodes
	holder, out := ns.spawn(roleHold)
	first, err := strconv.ParseUint(line(t, out), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l := take(t, rival, "x", &redlock.AcquireOptions{TTL: longTTL})
	if uint64(l.Token()) <= first {
		t.Errorf("token %d after %d", l.Token(), first)
	}
	pass(3 * slack / 2) // three TTLs since the stop
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := line(t, out); got != "true true true" {
		t.Errorf("ErrLost, context ended, deadline passed: %s", got)
	}
	release(t, l)
}

// TestB78NoSHA1: a process that is allowed FIPS 140 algorithms only takes and
// gives back leases. SHA-1 names scripts, but the server computes it.
func TestB78NoSHA1(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	ns.open(nil) // declares the nodes
	_, out := ns.spawn(roleCycle, "GODEBUG=fips140=only")
	if got := line(t, out); got != "done" {
		t.Error(got)
	}
	for i := range 3 {
		stats := ns.text(i, "INFO", "commandstats")
		if !strings.Contains(stats, "cmdstat_evalsha:") || strings.Contains(stats, "cmdstat_eval:") {
			t.Errorf("node %d: scripts were not called by their names:\n%s", i+1, stats)
		}
	}
}

// TestB95OneConnectionIsEnough: a hundred callers share one connection to each
// node, wait for each other's leases, and all get theirs.
func TestB95OneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(nil)
	inParallel(100, 400, func(i int) {
		release(t, take(t, lk, "x"+strconv.Itoa(i%20), nil))
	})
	await.True(t, patience, "one connection of the client to each node", func() bool {
		for i := range 3 {
			// The other one is ours.
			if n := strings.Count(ns.text(i, "CLIENT", "LIST", "TYPE", "normal"), "\n"); n != 2 {
				return false
			}
		}
		return true
	})
}
