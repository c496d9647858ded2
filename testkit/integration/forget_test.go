package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

const (
	// forgetTTL is the longest lease where nodes forget.
	forgetTTL = 2500 * time.Millisecond
	// forgetQ is how long a node then does not vote: the longest lease, 1 % for
	// clocks, and half of it for attempts under way.
	forgetQ = forgetTTL*101/100 + forgetTTL/2
)

// amnesia is a way for a server to lose a lease that it has granted.
type amnesia struct {
	args []string
	// before runs when the node has its configuration, but not the lease.
	before func(ns *nodes, i int) any
	// forget makes node i forget what it has granted since.
	forget func(ns *nodes, i int, before any)
}

var amnesias = map[string]amnesia{
	"F01 killed and restarted empty": {forget: func(ns *nodes, i int, _ any) {
		ns.kill(i)
		ns.restart(i)
	}},
	"F02 the tail of the AOF is lost": {
		args:   []string{"--appendonly", "yes", "--appendfsync", "everysec"},
		before: func(ns *nodes, i int) any { return aofSize(ns, i) },
		forget: func(ns *nodes, i int, before any) {
			path := aof(ns, i)
			await.True(ns.t, patience, "the lease is in the file", func() bool { return aofSize(ns, i) > before.(int64) })
			ns.kill(i)
			if err := os.Truncate(path, before.(int64)); err != nil {
				ns.t.Fatal(err)
			}
			ns.restart(i)
		},
	},
	"F04 an old dump is restored": {
		before: func(ns *nodes, i int) any { return ns.text(i, "SAVE") },
		forget: func(ns *nodes, i int, _ any) {
			ns.kill(i)
			ns.restart(i)
		},
	},
	"F09 FLUSHALL": {forget: func(ns *nodes, i int, _ any) { ns.text(i, "FLUSHALL") }},
	"F09 FLUSHDB":  {forget: func(ns *nodes, i int, _ any) { ns.text(i, "FLUSHDB", "ASYNC") }},
	"F11 SWAPDB":   {forget: func(ns *nodes, i int, _ any) { ns.text(i, "SWAPDB", "0", "1") }},
	"F12 failover to a stale replica": {before: staleCopy, forget: func(ns *nodes, i int, before any) {
		ns.kill(i)
		ns.proxies[i].Retarget(before.(*nodes).servers[0].Addr())
		ns.proxies[i].Cut()
	}},
	"F13 replica of a stale server for a moment": {before: staleCopy, forget: func(ns *nodes, i int, before any) {
		follow(ns, i, before.(*nodes).servers[0].Addr())
		ns.text(i, "REPLICAOF", "NO", "ONE")
	}},
	"F13 replica of nothing for a moment": {forget: func(ns *nodes, i int, _ any) {
		ns.text(i, "REPLICAOF", "127.0.0.1", "1")
		ns.text(i, "REPLICAOF", "NO", "ONE")
	}},
	"F68 replaced by an empty server": {forget: func(ns *nodes, i int, _ any) {
		ns.kill(i)
		ns.proxies[i].Retarget(start(ns.t, 1).servers[0].Addr())
		ns.proxies[i].Cut()
	}},
}

// aof is the file that server i appends to.
func aof(ns *nodes, i int) string {
	dir, err := ns.do(i, "CONFIG", "GET", "dir").AsStrMap()
	if err != nil {
		ns.t.Fatal(err)
	}
	return filepath.Join(dir["dir"], "appendonlydir", "appendonly.aof.1.incr.aof")
}

func aofSize(ns *nodes, i int) int64 {
	ns.t.Helper()
	info, err := os.Stat(aof(ns, i))
	if err != nil {
		ns.t.Fatal(err)
	}
	return info.Size()
}

// staleCopy returns a master that has what node i has now, and will not have what
// comes.
func staleCopy(ns *nodes, i int) any {
	stale := start(ns.t, 1, "--repl-diskless-sync-delay", "0")
	follow(stale, 0, ns.servers[i].Addr())
	stale.text(0, "REPLICAOF", "NO", "ONE")
	return stale
}

// follow makes node i a replica of the server at addr, and waits until it has
// its data.
func follow(ns *nodes, i int, addr string) {
	ns.t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	ns.text(i, "REPLICAOF", host, port)
	await.True(ns.t, patience, "the replica has the data", func() bool {
		return strings.Contains(ns.text(i, "INFO", "replication"), "master_link_status:up")
	})
}

// TestB28NoRivalWhileANodeForgets: somebody holds a name on three of five nodes and
// is stopped. Two of them are out of reach for his rivals, and the third forgets:
// with the two that never had the lease it would make a majority.
func TestB28NoRivalWhileANodeForgets(t *testing.T) {
	t.Parallel()
	for name, way := range amnesias {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := startProxied(t, 5, append([]string{"--repl-diskless-sync-delay", "0"}, way.args...)...)
			rival := &redlock.Options{Cluster: "c", MaxTTL: forgetTTL, TTL: time.Second, NodeTimeout: 100 * time.Millisecond}
			early := ns.open(rival) // knows the node from before
			warm(t, early)
			await.True(t, patience, "all nodes know us", func() bool { return len(fitNodes(early)) == 5 })
			ns.empty(undone, ns.all()...)
			var before any
			if way.before != nil {
				before = way.before(ns, 2)
			}

			token, until, cont := keepOnThree(ns)
			blackHole(ns, faultproxy.Swallow, 0, 1)
			forgot := instant()
			way.forget(ns, 2, before)
			if left := until - instant(); left < 0 {
				t.Fatalf("too slow to tell: the lease ended %v ago", -left)
			}
			late := ns.open(rival) // has everything to learn
			var wg sync.WaitGroup
			for by, lk := range map[string]*redlock.Locker{"early": early, "late": late} {
				wg.Go(func() {
					l, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: patience})
					got := instant()
					switch {
					case err != nil:
						t.Errorf("%s: %v", by, err)
						return
					case got < until:
						t.Errorf("%s: two holders for %v", by, until-got)
					case got < forgot+forgetQ:
						t.Errorf("%s: the node voted %v after it forgot, want %v", by, got-forgot, forgetQ)
					case got > forgot+2*forgetQ+slack:
						t.Errorf("%s: no lease for %v", by, got-forgot)
					}
					if uint64(l.Token()) <= token {
						t.Errorf("%s: token %d after %d", by, l.Token(), token)
					}
					_ = l.Release(t.Context()) // the two nodes confirm nothing
				})
			}
			wg.Wait()
			cont()
		})
	}
}

// keepOnThree has another process take a lease on the first three nodes, and
// stops it. It returns the token, the instant when the lease is over, and how to let the
// process go on, which then is to notice its loss.
func keepOnThree(ns *nodes) (token uint64, until time.Duration, cont func()) {
	ns.t.Helper()
	urls := []string{"redis://127.0.0.1:1", "redis://127.0.0.1:2"} // there is nobody
	for _, s := range ns.servers[:3] {
		urls = append(urls, s.URL())
	}
	holder, out := ns.spawn(roleKeep, nodesEnv+"="+strings.Join(urls, ","), clusterEnv+"=c", maxTTLEnv+"="+forgetTTL.String())
	if _, err := fmt.Sscan(line(ns.t, out), &token, (*int64)(&until)); err != nil {
		ns.t.Fatal(err)
	}
	await.True(ns.t, patience, "three nodes have the lease", func() bool {
		return ns.held(0, "x") != "" && ns.held(1, "x") != "" && ns.held(2, "x") != ""
	})
	if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
		ns.t.Fatal(err)
	}
	if ns.held(3, "x") != "" || ns.held(4, "x") != "" {
		ns.t.Fatal("the other nodes have it, too")
	}
	return token, until, func() {
		if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
			ns.t.Fatal(err)
		}
		if got := line(ns.t, out); got != "true" {
			ns.t.Errorf("the holder says of ErrLost: %s", got)
		}
	}
}
