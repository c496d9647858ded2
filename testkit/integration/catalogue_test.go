package integration

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
)

// The faults of the catalogue that are neither a loss of memory (forget_test.go,
// quarantine_test.go) nor of connections (fault_test.go): what operators, other
// programs and the servers themselves do to what a lock stores.

// TestF07ACrashLoop of one node of three costs nobody a lease.
func TestF07ACrashLoop(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(shortOptions())
	l := take(t, lk, "long", nil)
	guard := ""
	for range 4 {
		ns.kill(0)
		within(t, 0, "a lease without the node", func() { release(t, take(t, lk, "x", nil)) })
		ns.restart(0)
		within(t, 0, "a lease beside the empty node", func() { release(t, take(t, lk, "x", nil)) })
		guard = ns.inQuarantine(0, guard)
		within(t, 0, "a lease beside the node in quarantine", func() { release(t, take(t, lk, "x", nil)) })
	}
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("extend: %v", err)
	}
	release(t, l)
}

// TestF10DeletedKeys: an operator deletes a lease on as many nodes as a wider quorum
// leaves room for, and no rival gets the name. The holder hears of it, and puts the lease back
// where a quorum still has it; where none has, he has lost it.
func TestF10DeletedKeys(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	events := &log{}
	lk := ns.open(&redlock.Options{Quorum: 4, Observer: events.observe})
	rival := ns.open(&redlock.Options{Quorum: 4, TTL: time.Second})
	warm(t, rival)
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	await.True(t, patience, "all nodes have it", func() bool {
		return !slices.ContainsFunc(ns.all(), func(i int) bool { return ns.held(i, "x") == "" })
	})
	ns.forget("x", 4)
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("extend: %v", err)
	}
	await.True(t, patience, "the lease is back", func() bool { return ns.held(4, "x") != "" })
	if n := events.count(redlock.EventVanished, "x"); n != 1 {
		t.Errorf("%d nodes were said to have lost the lease, want 1", n)
	}
	ns.forget("x", 3, 4) // 2q - N - 1
	if got, err := rival.TryAcquire(t.Context(), "x", nil); err == nil {
		t.Error("two holders")
		release(t, got)
	}
	is(t, l.Extend(t.Context()), []error{redlock.ErrLost})
	_ = l.Release(t.Context())
}

// TestF11F71AnotherDatabase: a client that is given another database of the same servers finds
// blank nodes. It is not let in, as it was before nodes had to be declared.
func TestF11F71AnotherDatabase(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	l := take(t, ns.open(nil), "x", nil)
	var urls []string
	for _, url := range ns.urls() {
		urls = append(urls, url+"/1")
	}
	_, err := openBlank(t, urls, shortOptions()).Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: time.Second})
	is(t, err, []error{redlock.ErrQuarantined})
	if !strings.Contains(fmt.Sprint(err), "blank") {
		t.Errorf("%v does not say that the nodes are blank", err)
	}
	// F71: nothing tells how long leases were, so ours are no measure.
	if left := votes(t, err)[0].Remaining; left < 40*time.Second {
		t.Errorf("the nodes are to vote in %v, want 45 s from the start", left)
	}
	release(t, l)
}

// TestF13F20B91B92ANodeIsDemotedAndComesBack while clients have connections to it: as a
// replica it does not vote, also if it can be written to, and later its vote counts again, for
// the same clients.
func TestF13F20B91B92ANodeIsDemotedAndComesBack(t *testing.T) {
	t.Parallel()
	for name, demote := range map[string]func(ns *nodes){
		"F20 READONLY": func(ns *nodes) {
			follow(ns, 0, start(t, 1, "--repl-diskless-sync-delay", "0").servers[0].Addr())
		},
		"F14 writable": func(ns *nodes) { // and with all its data
			ns.text(0, "REPLICAOF", "127.0.0.1", "1")
			ns.text(0, "CONFIG", "SET", "replica-read-only", "no")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			o := shortOptions()
			o.ConnectWait = 300 * time.Millisecond
			lk := ns.open(o)
			warm(t, lk)
			demote(ns)
			within(t, 0, "a lease without the node", func() { warm(t, lk) })
			await.True(t, patience, "the node is unfit", func() bool {
				s := lk.Nodes(t.Context())[0]
				return errors.Is(s.Err, redlock.ErrUnfit) && strings.Contains(s.Err.Error(), "replica")
			})
			if keys := ns.leases(0); len(keys) > 0 {
				t.Errorf("the replica stores %v", keys)
			}
			ns.freeze(1)
			_, err := lk.TryAcquire(t.Context(), "x", nil)
			is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
			back := time.Now()
			ns.text(0, "REPLICAOF", "NO", "ONE")
			await.True(t, patience, "its vote counts again", func() bool {
				l, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: time.Second})
				if err == nil {
					release(t, l)
				}
				return err == nil
			})
			if took := time.Since(back); took < shortQ || took > shortQ+1*time.Second+slack { // a refusal is looked at again each second
				t.Errorf("its vote counts again after %v, want %v", took, shortQ)
			}
			ns.thaw(1)
		})
	}
}

// TestF20RefusedWrites: a server that refuses to write, for whatever reason, has not granted,
// and the error says why.
func TestF20RefusedWrites(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(ns *nodes, i int){
		"NOREPLICAS": func(ns *nodes, i int) { ns.text(i, "CONFIG", "SET", "min-replicas-to-write", "1") },
		"MASTERDOWN": func(ns *nodes, i int) {
			ns.text(i, "CONFIG", "SET", "replica-serve-stale-data", "no")
			ns.text(i, "REPLICAOF", "127.0.0.1", "1")
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			lk := ns.open(&redlock.Options{ConnectWait: 300 * time.Millisecond})
			warm(t, lk)
			spoil(ns, 0)
			within(t, 0, "a lease without a minority", func() { warm(t, lk) })
			spoil(ns, 1)
			_, err := lk.TryAcquire(t.Context(), "x", nil)
			is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v does not say %s", err, want)
			}
			ns.empty(undone, 2)
		})
	}
}

// TestF41TooManyConnections: a server that takes no more connections has no vote, and
// its own words are in the error; who is connected goes on.
func TestF41TooManyConnections(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	old := ns.open(nil)
	l := take(t, old, "x", nil)
	for i := range 2 {
		ns.text(i, "CONFIG", "SET", "maxclients", "1")
	}
	late := openBlank(t, ns.urls(), &redlock.Options{ConnectWait: 300 * time.Millisecond})
	_, err := late.TryAcquire(t.Context(), "y", nil)
	is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
	if !strings.Contains(fmt.Sprint(err), "max number of clients") {
		t.Errorf("%v does not say why", err)
	}
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("extend: %v", err)
	}
	ns.text(0, "CONFIG", "SET", "maxclients", "100")
	warm(t, late)
	release(t, l)
}

// TestF16B83Eviction: a server that is told to evict while it runs, and does, is noticed
// by whoever has a lease there.
func TestF16B83Eviction(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"volatile-ttl", "allkeys-lru"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			events := &log{}
			lk := ns.open(&redlock.Options{Observer: events.observe})
			l := take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
			await.True(t, patience, "the node has it", func() bool { return ns.held(2, "x") != "" })
			ns.text(2, "CONFIG", "SET", "maxmemory-policy", policy)
			ns.text(2, "CONFIG", "SET", "maxmemory", "2mb")
			await.True(t, patience, "the lease is evicted", func() bool {
				_ = ns.do(2, "EVAL", "for i = 1, 100 do redis.call('SET', 'filler' .. math.random(1e9), string.rep('x', 10000)) end", "0").Error()
				return ns.held(2, "x") == ""
			})
			if err := l.Extend(t.Context()); err != nil {
				t.Errorf("extend: %v", err)
			}
			await.True(t, patience, "it is told", func() bool {
				// Without its guard the node is greeted first, and found to be unfit.
				return events.count(redlock.EventVanished, "x")+events.count(redlock.EventNodeRefused, "") > 0
			})
			if err := lk.Nodes(t.Context())[2].Err; !errors.Is(err, redlock.ErrUnfit) || !strings.Contains(err.Error(), "maxmemory-policy") {
				t.Errorf("the node is not called unfit: %v", err)
			}
			release(t, l)
		})
	}
}

// TestF19B84MISCONF: servers that cannot save refuse the release, too. The error names the
// nodes and the cause, and says that a key may remain; it goes once they write again.
func TestF19B84MISCONF(t *testing.T) {
	t.Parallel()
	ns := start(t, 3, "--enable-protected-configs", "yes")
	lk := ns.open(&redlock.Options{ConnectWait: 300 * time.Millisecond})
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	for i := range 3 {
		dir, err := os.MkdirTemp("", "redlock-")
		if err != nil {
			t.Fatal(err)
		}
		ns.text(i, "CONFIG", "SET", "dir", dir)
		ns.text(i, "CONFIG", "SET", "save", "3600 1")
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		ns.text(i, "BGSAVE")
		await.True(t, patience, "the save has failed", func() bool {
			return strings.Contains(ns.text(i, "INFO", "persistence"), "rdb_last_bgsave_status:err")
		})
	}
	err := l.Release(t.Context())
	is(t, err, []error{redlock.ErrNoQuorum})
	told := fmt.Sprint(err)
	if !redlock.MayBeHeld(err) || strings.Count(told, "MISCONF") < 2 || !strings.Contains(told, ns.servers[0].Addr()) {
		t.Errorf("it is not said where a key may remain, or why: %v", err)
	}
	_, err = lk.TryAcquire(t.Context(), "y", nil)
	is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
	if !strings.Contains(fmt.Sprint(err), "MISCONF") {
		t.Errorf("%v does not say why", err)
	}
	for i := range 3 {
		ns.text(i, "CONFIG", "SET", "save", "") // nor would it end otherwise
	}
	warm(t, lk)
	ns.empty(undone, ns.all()...)
}

// TestF72NoIDIsUsedTwice, by one process or several.
func TestF72NoIDIsUsedTwice(t *testing.T) {
	t.Parallel()
	ns := start(t, 1, "--appendonly", "yes", "--appendfsync", "no")
	warm(t, ns.open(nil))
	var others sync.WaitGroup
	for range 2 {
		_, out := ns.spawn(roleChurn)
		others.Go(func() { line(t, out) })
	}
	others.Wait()
	inParallel(4, 200, func(i int) { release(t, take(t, ns.open(nil), fmt.Sprint("x", i%8), nil)) })
	raw, err := os.ReadFile(aof(ns, 0))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, value := range leaseValue(raw) {
		if ids[value] {
			t.Errorf("%s was used twice", value)
		}
		ids[value] = true
	}
	if len(ids) < 200 {
		t.Errorf("only %d ids were seen", len(ids))
	}
}

// leaseValue returns the ids of the leases that a file of commands stores.
func leaseValue(aof []byte) (ids []string) {
	lines := bytes.Split(aof, []byte("\r\n"))
	for i := 2; i+4 < len(lines); i++ {
		if bytes.EqualFold(lines[i], []byte("SET")) && bytes.HasPrefix(lines[i+2], []byte("redlock:{")) {
			id, _, _ := bytes.Cut(lines[i+4], []byte(":"))
			ids = append(ids, string(id))
		}
	}
	return ids
}

// TestF73DataOfOthersUnderOurKeys is refused and stays as it is.
func TestF73DataOfOthersUnderOurKeys(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(&redlock.Options{ConnectWait: 300 * time.Millisecond})
	warm(t, lk)
	for i := range 3 {
		_ = ns.do(i, "RPUSH", key("list"), "data")
		ns.text(i, "SET", key("text"), "data")
	}
	for _, name := range []string{"list", "text"} {
		within(t, 0, "a refusal", func() {
			_, err := lk.Acquire(t.Context(), name, nil)
			is(t, err, []error{redlock.ErrForeignKey}, redlock.ErrHeld)
		})
	}
	for i := range 3 {
		if ns.text(i, "LINDEX", key("list"), "0") != "data" || ns.text(i, "GET", key("text")) != "data" {
			t.Errorf("node %d: what is not ours was touched", i+1)
		}
	}
	// The keys that are about the node itself: it does not vote, the others do.
	_ = ns.do(0, "DEL", "redlock:tokens")
	_ = ns.do(0, "RPUSH", "redlock:tokens", "data")
	warm(t, lk)
	_ = ns.do(0, "DEL", "redlock:node")
	_ = ns.do(0, "RPUSH", "redlock:node", "data")
	warm(t, lk)
	if got := ns.text(0, "LINDEX", "redlock:node", "0"); got != "data" {
		t.Errorf("the key of others became %q", got)
	}
	ns.text(1, "SET", "redlock:node", "data")
	_, err := lk.TryAcquire(t.Context(), "x", nil)
	if err == nil {
		t.Error("a lease on one node of three")
	}
}

// TestF79CountersThatAreNone: a counter that is no number below 2^53 gives out nothing.
func TestF79CountersThatAreNone(t *testing.T) {
	t.Parallel()
	ns := start(t, 1)
	lk := ns.open(&redlock.Options{ConnectWait: 100 * time.Millisecond})
	warm(t, lk)
	const last = 1<<53 - 1
	for _, bad := range []string{"1e+15", "nan", "inf", "-1", "1.5", "0x10", "", " 7", fmt.Sprint(last), fmt.Sprint(last + 1), "99999999999999999999"} {
		_ = ns.do(0, "HSET", "redlock:tokens", "floor", bad)
		_, err := lk.TryAcquire(t.Context(), "x", nil)
		is(t, err, []error{redlock.ErrNoQuorum})
		if !strings.Contains(fmt.Sprint(err), "bad counter") {
			t.Errorf("%q: %v does not say why", bad, err)
		}
		if got := ns.text(0, "HGET", "redlock:tokens", "floor"); got != bad {
			t.Errorf("%q became %q", bad, got)
		}
	}
	_ = ns.do(0, "HSET", "redlock:tokens", "floor", fmt.Sprint(last-1))
	l := take(t, lk, "x", nil)
	if l.Token() != last {
		t.Errorf("token %d, want the last that there is", l.Token())
	}
	release(t, l)
}

// TestF80CountersDoNotExpire, and a clock that leaps forward and back takes no number away.
func TestF80CountersDoNotExpire(t *testing.T) {
	t.Parallel()
	ns, clock := startWithClock(t, 1)
	take2 := func() *redlock.Lease {
		// A client that has seen the clock would not take the node's vote.
		l := take(t, ns.open(nil), "x", nil)
		release(t, l)
		return l
	}
	before := take2()
	clock.Jump(30 * 24 * time.Hour)
	ahead := take2()
	clock.Jump(-60 * 24 * time.Hour)
	behind := take2()
	if !(before.Token() < ahead.Token() && ahead.Token() < behind.Token()) {
		t.Errorf("tokens %d, %d, %d", before.Token(), ahead.Token(), behind.Token())
	}
	for _, k := range []string{"redlock:tokens", "redlock:node"} {
		if ttl, err := ns.do(0, "PTTL", k).AsInt64(); err != nil || ttl != -1 {
			t.Errorf("%s has %d ms left (%v)", k, ttl, err)
		}
	}
}

// TestB30ReplicasAreNoNodes: two of three addresses are replicas of the first.
func TestB30ReplicasAreNoNodes(t *testing.T) {
	t.Parallel()
	ns := start(t, 3, "--repl-diskless-sync-delay", "0")
	var text lockedBuffer
	lk := openBlank(t, ns.urls(), &redlock.Options{ConnectWait: 300 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	follow(ns, 1, ns.servers[0].Addr())
	follow(ns, 2, ns.servers[0].Addr())
	states, err := lk.Init(t.Context(), nil)
	is(t, err, []error{redlock.ErrUnfit})
	for i, s := range states {
		if unfit := errors.Is(s.Err, redlock.ErrUnfit); unfit != (i > 0) {
			t.Errorf("node %d: %+v", i+1, s)
		}
	}
	_, err = lk.Acquire(t.Context(), "x", nil)
	is(t, err, []error{redlock.ErrUnfit}, redlock.ErrHeld)
	if !strings.Contains(fmt.Sprint(err), "replica") || !strings.Contains(text.String(), "replica") {
		t.Errorf("not said: %v, %s", err, text.String())
	}
}

// TestB31EvenNumbers: a quorum of two is two, of four three; it is never lowered, and said.
func TestB31EvenNumbers(t *testing.T) {
	t.Parallel()
	for n, quorum := range map[int]int{2: 2, 4: 3} {
		var text lockedBuffer
		ns := start(t, n)
		lk := ns.open(&redlock.Options{ConnectWait: 300 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		warm(t, lk)
		if !strings.Contains(text.String(), "even number of nodes") || !strings.Contains(text.String(), fmt.Sprint("quorum=", quorum)) {
			t.Errorf("%d nodes: not said: %s", n, text.String())
		}
		for i := range n - quorum {
			ns.kill(i)
			warm(t, lk)
		}
		ns.kill(n - 1)
		_, err := lk.TryAcquire(t.Context(), "x", nil)
		is(t, err, []error{redlock.ErrNoQuorum})
	}
}

// TestB105TheListOfNodesIsTheCallers: clients opened with the same list at the same time
// neither change it nor race for it.
func TestB105TheListOfNodesIsTheCallers(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	urls := ns.urls()
	slices.Reverse(urls)
	before := slices.Clone(urls)
	ns.open(nil) // declares the nodes
	inParallel(20, 100, func(i int) {
		lk := openBlank(t, urls, &redlock.Options{NodeTimeout: generous})
		release(t, take(t, lk, fmt.Sprint("x", i), nil))
	})
	if !slices.Equal(urls, before) {
		t.Errorf("the list became %v", urls)
	}
}

// TestB108AUserOfOneNamespace: what a lock needs lies under its namespace, also while a
// node is in quarantine.
func TestB108AUserOfOneNamespace(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	var urls []string
	for i, s := range ns.servers {
		ns.text(i, "ACL", "SETUSER", "app", "on", ">pw", "resetchannels", "&app:*", "~app:*", "+@all")
		urls = append(urls, "redis://app:pw@"+s.Addr())
	}
	o := shortOptions()
	o.Namespace = "app"
	lk := open(t, urls, o)
	cycle := func() {
		t.Helper()
		l := take(t, lk, "x", nil)
		if err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := lk.Inspect(t.Context(), "x"); err != nil {
			t.Error(err)
		}
		handle, err := l.Handle()
		if err != nil {
			t.Fatal(err)
		}
		l, err = lk.Resume(t.Context(), handle, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := lk.Break(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
		over(t, l)
		_ = l.Release(t.Context())
	}
	cycle()
	ns.text(0, "FLUSHALL")
	cycle()
	await.True(t, patience, "the node votes again", func() bool { return lk.Nodes(t.Context())[0].Standing == "ok" })
	for i := range 3 {
		if log := ns.do(i, "ACL", "LOG"); log.Error() != nil || strings.Contains(fmt.Sprint(log.ToAny()), "reason") {
			t.Errorf("node %d refused something: %v", i+1, fmt.Sprint(log.ToAny()))
		}
	}
}
