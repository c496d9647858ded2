package integration

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
)

// TestB35OneCallPerAcquire: between a lease and its expiry there is no second step
// in which a client can die.
func TestB35OneCallPerAcquire(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(nil)
	warm(t, lk)
	ns.empty(undone, ns.all()...)
	monitor := ns.monitor(1)
	l := take(t, lk, "x", nil)
	await.True(t, patience, "the node has it", func() bool { return ns.held(1, "x") != "" })
	release(t, l)
	ns.empty(undone, ns.all()...)
	var client, writes []string
	for {
		text := line(t, monitor)
		_, command, found := strings.Cut(text, "] ")
		if !found || !strings.Contains(text, "redlock") {
			continue
		}
		switch lua := strings.Contains(text, " lua]"); {
		case lua && strings.Contains(text, key("x")):
			writes = append(writes, command)
		case !lua && strings.HasPrefix(command, `"EVAL`):
			client = append(client, command)
		}
		if strings.Contains(text, `"KEYS"`) { // ours, after the release
			break
		}
	}
	// A release that is answered late is sent once more.
	acquires := slices.DeleteFunc(client, func(call string) bool { return strings.Contains(call, ` "d" `) })
	if len(acquires) != 1 || !strings.Contains(acquires[0], ` "A" `) {
		t.Errorf("an acquire and a release are the calls %q", client)
	}
	if len(writes) == 0 || !strings.Contains(writes[0], `"SET"`) ||
		!strings.Contains(writes[0], `"NX" "PX"`) {
		t.Errorf("the lease is written by %q", writes)
	}
}

// monitor returns what node i carries out from now on.
func (ns *nodes) monitor(i int) *bufio.Reader {
	ns.t.Helper()
	conn, err := net.Dial("tcp", ns.servers[i].Addr())
	if err != nil {
		ns.t.Fatal(err)
	}
	ns.t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		ns.t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	r := bufio.NewReader(conn)
	if ok := line(ns.t, r); ok != "+OK" {
		ns.t.Fatalf("MONITOR: %s", ok)
	}
	return r
}

// TestB35KilledClientsLeaveNothingForEver: whenever a client dies, each of its keys
// has an end.
func TestB35KilledClientsLeaveNothingForEver(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	ns.open(nil) // declares the nodes
	for range 12 {
		cmd, out := ns.spawn(roleChurn)
		if text := line(t, out); text != "going" {
			t.Fatal(text)
		}
		pass(rand.N(20 * time.Millisecond))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, i := range ns.all() {
			for _, k := range ns.leases(i) {
				if ms, err := ns.do(i, "PTTL", k).AsInt64(); err != nil || ms == -1 || ms > 1000 {
					t.Errorf("node %d: %s lasts %d ms more, %v", i+1, k, ms, err)
				}
			}
		}
	}
	ns.empty(time.Second+slack, ns.all()...)
}

// TestB77F23ScriptsAreLoadedAgain: a server that forgot the scripts costs one more
// call, in every operation, and no failure.
func TestB77F23ScriptsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ns := start(t, n)
			lk := ns.open(nil)
			warm(t, lk)
			flush := func() {
				for _, i := range ns.all() {
					ns.text(i, "SCRIPT", "FLUSH")
				}
			}
			for round := range 20 {
				name := fmt.Sprint("x", round)
				flush()
				l, err := lk.TryAcquire(t.Context(), name, &redlock.AcquireOptions{MaxAttempts: 1, TTL: longTTL})
				if err != nil {
					t.Fatal(err)
				}
				flush()
				if err := l.Extend(t.Context()); err != nil {
					t.Error(err)
				}
				flush()
				if s, err := lk.Inspect(t.Context(), name); err != nil || !s.Held {
					t.Errorf("inspect: %+v, %v", s, err)
				}
				flush()
				release(t, l)
			}
			ns.empty(undone, ns.all()...)
		})
	}
}

// TestServersWithoutTheScriptCache: where the user may run EVAL and not EVALSHA
// or SCRIPT, every call sends the script.
func TestServersWithoutTheScriptCache(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	for _, i := range ns.all() {
		ns.text(i, "ACL", "SETUSER", "lock", "on", ">pw", "~redlock:*", "&redlock:wake:*", "+@all", "-evalsha", "-script")
	}
	var urls []string
	for _, s := range ns.servers {
		urls = append(urls, "redis://lock:pw@"+s.Addr())
	}
	lk := open(t, urls, nil)
	for range 5 {
		l := take(t, lk, "x", nil)
		if err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		release(t, l)
	}
}
