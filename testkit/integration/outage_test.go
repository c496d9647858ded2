package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// TestB20QuorumIsOfTheNodesConfigured: a client that starts while two of five nodes
// are down needs three all the same.
func TestB20QuorumIsOfTheNodesConfigured(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	ns.kill(3, 4)
	a := ns.open(&redlock.Options{ConnectWait: 500 * time.Millisecond})
	warm(t, a)
	ns.restart(3, 4)
	b := ns.open(nil)
	warm(t, b)
	var ts tenures
	var wg sync.WaitGroup
	for by, lk := range map[string]*redlock.Locker{"a": a, "b": b} {
		wg.Go(func() {
			for range 50 {
				l := take(t, lk, "x", nil)
				ts.work(l, by, time.Millisecond)
				release(t, l)
			}
		})
	}
	wg.Wait()
	ts.check(t)
	ns.kill(2, 3, 4)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := a.TryAcquire(ctx, "x", nil) // two of the dead were in quarantine
	is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld, redlock.ErrQuarantined)
	var q *redlock.QuorumError
	if errors.As(err, &q) && q.Need != 3 {
		t.Errorf("a needs %d of five", q.Need)
	}
}

// TestB85AMinorityThatCannotVote is data, not a failure.
func TestB85AMinorityThatCannotVote(t *testing.T) {
	t.Parallel()
	const password = "s3cret/of:node@3"
	for name, bad := range map[string]struct {
		url      func(t *testing.T, ns *nodes) string
		standing string
		reason   error
	}{
		"refused": {func(t *testing.T, ns *nodes) string {
			ns.kill(2)
			return ns.servers[2].URL()
		}, "unreachable", redlock.ErrNoQuorum},
		"no such host": {func(*testing.T, *nodes) string {
			return "redis://no-such-host.invalid:6379"
		}, "unreachable", redlock.ErrNoQuorum},
		"TLS to a server without": {func(_ *testing.T, ns *nodes) string {
			return strings.Replace(ns.servers[2].URL(), "redis:", "rediss:", 1)
		}, "unreachable", redlock.ErrNoQuorum},
		"wrong password": {func(_ *testing.T, ns *nodes) string {
			ns.text(2, "CONFIG", "SET", "requirepass", "an0ther")
			return "redis://:s3cret%2Fof%3Anode%403@" + ns.servers[2].Addr()
		}, "unfit", redlock.ErrNotPermitted},
		"no password": {func(_ *testing.T, ns *nodes) string {
			ns.text(2, "CONFIG", "SET", "requirepass", "an0ther")
			return ns.servers[2].URL()
		}, "unfit", redlock.ErrNotPermitted},
		"silent port": {func(t *testing.T, ns *nodes) string {
			return "redis://" + deaf(t)
		}, "unreachable", redlock.ErrNoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			var text lockedBuffer
			url := bad.url(t, ns)
			lk := open(t, append(ns.urls()[:2], url), &redlock.Options{
				Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			worksWithoutTheThird(t, lk)
			states := lk.Nodes(t.Context())
			if s := states[2]; s.Standing != bad.standing || !errors.Is(s.Err, bad.reason) {
				t.Errorf("the third node: %+v, want standing %s and %v", s, bad.standing, bad.reason)
			}
			for _, s := range states[:2] {
				if s.Standing != "ok" || s.Err != nil || s.RunID == "" || !strings.HasPrefix(s.Version, "7") {
					t.Errorf("a good node: %+v", s)
				}
			}
			ns.occupy("held", "e", time.Minute, 0, 1)
			_, err := lk.TryAcquire(t.Context(), "held", nil)
			is(t, err, []error{redlock.ErrHeld})
			told := fmt.Sprintf("%v %+v %v %v %s", err, err, votes(t, err), states, text.String())
			for _, secret := range []string{password, "s3cret", "an0ther"} {
				if strings.Contains(told, secret) {
					t.Errorf("%q is told: %s", secret, told)
				}
			}
		})
	}
}

// worksWithoutTheThird takes leases, the first one at leisure and the others at
// the first try.
func worksWithoutTheThird(t *testing.T, lk *redlock.Locker) {
	t.Helper()
	within(t, time.Second, "a lease without the third node", func() {
		l := take(t, lk, "x", nil)
		if err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		release(t, l)
	})
	for round := range 20 {
		l, err := lk.TryAcquire(t.Context(), fmt.Sprint("x", round), &redlock.AcquireOptions{MaxAttempts: 1})
		if err != nil {
			t.Errorf("the first try of round %d: %v", round, err)
			continue
		}
		release(t, l)
	}
}

// deaf returns the address of a port that takes connections and never answers.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// lockedBuffer is a buffer for many writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestAllWrongPassword: credentials that no node takes end at once, with the
// reason, and are told nowhere.
func TestAllWrongPassword(t *testing.T) {
	t.Parallel()
	ns := start(t, 3, "--requirepass", "right")
	var urls []string
	for _, s := range ns.servers {
		urls = append(urls, "redis://user:wr0ngpass@"+s.Addr())
	}
	var text lockedBuffer
	lk := open(t, urls, &redlock.Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	within(t, time.Second, "a refusal of all nodes", func() {
		_, err := lk.Acquire(t.Context(), "x", nil)
		is(t, err, []error{redlock.ErrUnfit, redlock.ErrNotPermitted}, redlock.ErrHeld)
		told := fmt.Sprintf("%v %+v %v %v %s", err, err, votes(t, err), lk.Nodes(t.Context()), text.String())
		if strings.Contains(told, "wr0ngpass") {
			t.Errorf("the password is told: %s", told)
		}
	})
}

// TestB86VotesAreVisible: two taken, two down and one granted is neither held nor
// a plain outage, and the error says what each node answered.
func TestB86VotesAreVisible(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	lk := ns.open(nil)
	warm(t, lk)
	ns.occupy("x", "e", time.Minute, 0, 1)
	ns.kill(3, 4)
	_, err := lk.TryAcquire(t.Context(), "x", &redlock.AcquireOptions{TTL: time.Second})
	is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
	for i, v := range votes(t, err) {
		want := []string{"refused", "refused", "granted", "failed", "failed"}[i]
		if string(v.Outcome) != want || !strings.HasPrefix(v.Node, ns.servers[i].Addr()) {
			t.Errorf("vote %d is %+v, want %s", i+1, v, want)
		}
		if want == "refused" && (v.Owner != "rival" || v.Remaining < 20*time.Second) {
			t.Errorf("the refusal does not name the holder: %+v", v)
		}
		if want == "failed" && v.Err == nil {
			t.Errorf("the failure has no reason: %+v", v)
		}
	}
	ns.empty(undone, 2)
}

// TestARestartedNodeIsQuarantined: a node that comes back empty is told about,
// and locks go on, before, during and after.
func TestARestartedNodeIsQuarantined(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	events := &log{}
	var text lockedBuffer
	lk := ns.open(&redlock.Options{
		MaxTTL: 2 * time.Second, TTL: 2 * time.Second, Observer: events.observe, Logger: slog.New(slog.NewTextHandler(&text, nil)),
	})
	l := take(t, lk, "long", &redlock.AcquireOptions{TTL: 2 * time.Second})
	ns.kill(0)
	warm(t, lk)
	events.await(t, redlock.EventNodeDown, "", 0)
	restarted := time.Now()
	ns.restart(0)
	events.await(t, redlock.EventNodeUp, "", 0)
	if events.count(redlock.EventNodeQuarantined, "") == 0 {
		t.Errorf("nothing told that the node does not vote; the log: %s", text.String())
	}
	warm(t, lk)
	await.True(t, patience, "the lease has joined the restarted node", func() bool { return ns.held(0, "long") != "" })
	const q = 3020 * time.Millisecond // the longest lease, 1 % for clocks, and half of it for attempts
	if took := time.Since(restarted); took < q || took > q+2*time.Second+slack {
		t.Errorf("the node votes after %v, want %v", took, q)
	}
	warm(t, lk)
	if err := l.Context().Err(); err != nil {
		t.Errorf("the lease ended: %v", context.Cause(l.Context()))
	}
	release(t, l)
	ns.empty(undone, ns.all()...)
}

// TestF03ARestartWithItsDataIsQuarantined: the guard on the node names the process
// that wrote it, and nobody can tell what else it lost. The lease that it still has is kept up.
func TestF03ARestartWithItsDataIsQuarantined(t *testing.T) {
	t.Parallel()
	ns := start(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	events := &log{}
	a := ns.open(nil)
	l := take(t, a, "x", &redlock.AcquireOptions{TTL: longTTL})
	await.True(t, patience, "the lease is on the node", func() bool { return ns.held(0, "x") != "" })
	ns.restart(0)
	if ns.held(0, "x") == "" {
		t.Error("the node has forgotten the lease")
	}
	b := ns.open(&redlock.Options{Observer: events.observe})
	warm(t, b)
	if events.count(redlock.EventNodeQuarantined, "") != 1 {
		t.Error("nothing told that the node is another process than before")
	}
	warm(t, a)
	release(t, l)
	ns.empty(undone, ns.all()...)
}

// TestFlushedNode: FLUSHALL takes the guard too, without a reconnect.
func TestFlushedNode(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	events := &log{}
	lk := ns.open(&redlock.Options{MaxTTL: 2 * time.Second, TTL: 2 * time.Second, Observer: events.observe})
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: time.Second})
	await.True(t, patience, "the lease is on the node", func() bool { return ns.held(1, "x") != "" })
	ns.text(1, "FLUSHALL")
	events.await(t, redlock.EventNodeQuarantined, "", 0)
	await.True(t, patience, "the lease has joined the flushed node", func() bool { return ns.held(1, "x") != "" })
	warm(t, lk)
	release(t, l)
	ns.empty(undone, ns.all()...)
}

// TestNodesOnlyLooks: asking the nodes who they are changes nothing.
func TestNodesOnlyLooks(t *testing.T) {
	t.Parallel()
	ns := start(t, 2)
	lk := openBlank(t, ns.urls(), &redlock.Options{})
	for i, s := range lk.Nodes(t.Context()) {
		if s.Err != nil || s.Standing != "new" {
			t.Errorf("a blank node: %+v", s)
		}
		if ns.text(i, "GET", "redlock:node") != "" {
			t.Errorf("node %d was declared by a look: %q", i+1, ns.text(i, "GET", "redlock:node"))
		}
	}
	if states, err := lk.Init(t.Context(), nil); err != nil {
		t.Errorf("init: %v, %v", states, err)
	}
	for i := range ns.all() {
		if ns.text(i, "GET", "redlock:node") == "" {
			t.Errorf("node %d was not declared by init", i+1)
		}
	}
}

// TestF69F70F71Mismatch: clients that count differently would not exclude each other.
func TestF69F70F71Mismatch(t *testing.T) {
	t.Parallel()
	few, more, others := []int{0, 1}, []int{0, 1, 2, 3, 4}, []int{0, 1, 3}
	for name, tt := range map[string]struct {
		first, second redlock.Options
		members       []int  // of five servers, those of the second client; the first has three
		database      string // of the last of them
		field         string
	}{
		"quorum":          {second: redlock.Options{Quorum: 3}, field: "quorum: 3 here, 2 on the node"},
		"F71 max TTL":     {second: redlock.Options{MaxTTL: time.Minute}, field: "max TTL in ms: 60000 here, 30000 on the node"},
		"lower max TTL":   {second: redlock.Options{MaxTTL: 10 * time.Second}, field: "max TTL"},
		"plain keys":      {second: redlock.Options{PlainKeys: true}, field: "plain keys: true here, false on the node"},
		"no plain keys":   {first: redlock.Options{PlainKeys: true}, field: "plain keys: false here, true on the node"},
		"cluster":         {second: redlock.Options{Cluster: "other"}, field: "members"},
		"fewer":           {first: redlock.Options{Quorum: 3}, second: redlock.Options{Quorum: 2}, members: few, field: "members"},
		"F70 other nodes": {members: others, field: "members"},
		"F11 database":    {database: "/1", field: "members"},
		"F69 two more":    {members: more, field: "number of nodes: 5 here, 3 on the node"},
		"F69 two more, one cluster": {
			first: redlock.Options{Cluster: "c"}, second: redlock.Options{Cluster: "c"}, members: more, field: "number of nodes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 5)
			a := open(t, ns.urls()[:3], &tt.first)
			warm(t, a)
			if tt.members == nil {
				tt.members = []int{0, 1, 2}
			}
			var urls []string
			for _, i := range tt.members {
				urls = append(urls, ns.urls()[i])
			}
			urls[len(urls)-1] += tt.database
			refusedForItsField(t, open(t, urls, &tt.second), tt.field)
			warm(t, a)
			for _, i := range ns.all() { // with plain keys no pattern finds them
				if tt.first.PlainKeys || tt.second.PlainKeys {
					if got := ns.text(i, "GET", "x"); got != "" {
						t.Errorf("node %d: the second client stored %q", i+1, got)
					}
				}
			}
			ns.empty(undone, ns.all()...)
		})
	}
}

// refusedForItsField takes no lease, twice, because of what the first client had declared.
func refusedForItsField(t *testing.T, b *redlock.Locker, field string) {
	t.Helper()
	for range 2 {
		within(t, time.Second, "a mismatch", func() {
			_, err := b.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: patience})
			is(t, err, []error{redlock.ErrMismatch}, redlock.ErrHeld)
			if err != nil && !strings.Contains(err.Error(), field) {
				t.Errorf("%v does not say %q", err, field)
			}
		})
	}
	mismatches := 0
	for _, s := range b.Nodes(t.Context()) {
		if s.Standing == "mismatch" && errors.Is(s.Err, redlock.ErrMismatch) && strings.Contains(s.Err.Error(), field) {
			mismatches++
		}
	}
	if mismatches < 2 {
		t.Errorf("%d nodes say that they have another configuration: %+v", mismatches, b.Nodes(t.Context()))
	}
}

// TestOneServerGivenTwice counts once, under whatever addresses.
func TestOneServerGivenTwice(t *testing.T) {
	t.Parallel()
	ns := start(t, 2)
	twin, err := faultproxy.Start(ns.servers[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = twin.Close() })
	lk := open(t, append(ns.urls(), twin.URL()), nil)
	for range 10 {
		warm(t, lk) // two servers are a quorum of three nodes
	}
	unfit := 0
	for _, s := range lk.Nodes(t.Context()) {
		if errors.Is(s.Err, redlock.ErrUnfit) && strings.Contains(s.Err.Error(), "same server") {
			unfit++
		}
	}
	if unfit != 1 {
		t.Errorf("%d nodes are unfit, want one of the two that are one", unfit)
	}
	ns.kill(1)
	_, err = lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: time.Second})
	is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)

	both := open(t, []string{ns.servers[0].URL(), twin.URL()}, &redlock.Options{Cluster: "both"})
	_, err = both.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: time.Second})
	if err == nil {
		t.Error("one server was counted as two nodes")
	}
}

// TestB81UnfitServers are refused with the reason, a member of a cluster among
// them: the keys of a lock need not be in one slot.
func TestB81UnfitServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args   []string
		reason string
	}{
		"evicts any":      {[]string{"--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"}, "maxmemory-policy"},
		"evicts volatile": {[]string{"--maxmemory", "50mb", "--maxmemory-policy", "volatile-ttl"}, "maxmemory-policy"},
		"cluster":         {[]string{"--cluster-enabled", "yes"}, "cluster"},
		"replica":         {[]string{"--replicaof", "127.0.0.1 1"}, "replica"},
		"no EVAL":         {[]string{"--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""}, "permitted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 1, tt.args...)
			lk := ns.open(nil)
			within(t, time.Second, "a refusal", func() {
				_, err := lk.Acquire(t.Context(), "x", nil)
				is(t, err, []error{redlock.ErrUnfit}, redlock.ErrHeld)
				if err != nil && !strings.Contains(err.Error(), tt.reason) {
					t.Errorf("%v does not say %q", err, tt.reason)
				}
			})
			good := start(t, 2)
			lk = open(t, append(good.urls(), ns.urls()...), nil)
			warm(t, lk) // one that is unfit does not hinder the others
		})
	}
}

// TestF15OldDataUnderTheSameProcess: DEBUG RELOAD brings a snapshot back, with
// the same run_id and the same guard. The token counter gives it away.
func TestF15OldDataUnderTheSameProcess(t *testing.T) {
	t.Parallel()
	ns := start(t, 3, "--enable-debug-command", "yes")
	events := &log{}
	lk := ns.open(&redlock.Options{Observer: events.observe})
	warm(t, lk)
	ns.text(1, "SAVE")
	l := take(t, lk, "x", nil)
	await.True(t, patience, "the lease is on the node", func() bool { return ns.held(1, "x") != "" })
	guard := ns.text(1, "GET", "redlock:node")
	ns.text(1, "DEBUG", "RELOAD", "NOSAVE")
	if ns.held(1, "x") != "" || ns.text(1, "GET", "redlock:node") != guard {
		t.Fatal("the snapshot is not back")
	}
	await.True(t, patience, "the node is in quarantine", func() bool {
		b, err := lk.TryAcquire(t.Context(), "x", &redlock.AcquireOptions{MaxAttempts: 1})
		if err == nil {
			release(t, b)
			t.Fatal("two holders")
		}
		return events.count(redlock.EventNodeQuarantined, "") == 1
	})
	release(t, l)
}
