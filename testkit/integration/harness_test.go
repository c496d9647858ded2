// Package integration tests the library as its users meet it: real servers,
// real sockets, and faults between them.
//
// The tests are named after what must not happen. B and a number is a bug that
// users of other lock libraries have reported, F and a number a fault that a
// lock has to live with.
package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
	"example.com/redlock/testkit/redisserver"
)

const (
	// slack is what a busy machine may add to a bound of the protocol.
	slack = 2 * time.Second
	// undone is how long the undo of a failed attempt may take where all nodes
	// answer: a second, and the slack.
	undone = time.Second + slack
	// patience is for what has no bound of its own.
	patience = 20 * time.Second
	// longTTL is longer than any test: what is still there was left behind.
	longTTL = 30 * time.Second
	// generous is a node timeout that a busy machine does not reach by itself.
	generous = 500 * time.Millisecond
)

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// nodes are the servers of one test, and what stands before them.
type nodes struct {
	t       testing.TB
	servers []*redisserver.Server
	proxies []*faultproxy.Proxy // one for each server, or none
	direct  []rueidis.Client    // past the proxies
}

// start starts n servers.
func start(t testing.TB, n int, args ...string) *nodes {
	t.Helper()
	ns := &nodes{t: t, servers: redisserver.StartN(t, n, args...), direct: make([]rueidis.Client, n)}
	t.Cleanup(func() {
		for _, c := range ns.direct {
			if c != nil {
				c.Close()
			}
		}
	})
	return ns
}

// startProxied starts n servers with a fault proxy before each.
func startProxied(t testing.TB, n int, args ...string) *nodes {
	t.Helper()
	ns := start(t, n, args...)
	for _, s := range ns.servers {
		p, err := faultproxy.Start(s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		ns.proxies = append(ns.proxies, p)
	}
	return ns
}

// urls are the addresses for clients.
func (ns *nodes) urls() []string {
	var urls []string
	for i, s := range ns.servers {
		if ns.proxies != nil {
			urls = append(urls, ns.proxies[i].URL())
		} else {
			urls = append(urls, s.URL())
		}
	}
	return urls
}

// open returns a client of all nodes. Its node timeout is generous unless o
// says otherwise.
func (ns *nodes) open(o *redlock.Options) *redlock.Locker {
	ns.t.Helper()
	return open(ns.t, ns.urls(), o)
}

func open(t testing.TB, urls []string, o *redlock.Options) *redlock.Locker {
	t.Helper()
	if o == nil {
		o = &redlock.Options{}
	}
	settings := *o
	if settings.NodeTimeout == 0 {
		settings.NodeTimeout = generous
	}
	return openAsIs(t, urls, &settings)
}

// openAsIs leaves the options alone, but for the logger. The nodes are new when a
// test opens them for the first time.
func openAsIs(t testing.TB, urls []string, o *redlock.Options) *redlock.Locker {
	t.Helper()
	lk := openBlank(t, urls, o)
	conf := fmt.Sprint(t.Name(), urls, o.Namespace, o.Cluster, o.PlainKeys, o.MaxTTL, o.Quorum)
	if _, known := declared.LoadOrStore(conf, true); !known {
		declare(t, lk)
	}
	return lk
}

// declare declares those nodes that are new. Some may be made not to vote, or not to
// answer: then it takes force.
func declare(t testing.TB, lk *redlock.Locker) {
	t.Helper()
	records := false
	for _, s := range lk.Nodes(t.Context()) {
		records = records || s.HasRecords
	}
	_, _ = lk.Init(t.Context(), &redlock.InitOptions{Force: !records})
}

// declared has the configurations that were opened, by test.
var declared sync.Map

// openBlank does not declare the nodes.
func openBlank(t testing.TB, urls []string, o *redlock.Options) *redlock.Locker {
	t.Helper()
	settings := *o
	if settings.Logger == nil {
		settings.Logger = quiet
	}
	lk, err := redlock.Open(t.Context(), urls, &settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, lk) })
	return lk
}

func closeLocker(t testing.TB, lk *redlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := lk.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// do sends a command to server i past the proxy. The server must be alive.
func (ns *nodes) do(i int, args ...string) rueidis.RedisResult {
	ns.t.Helper()
	if ns.direct[i] == nil {
		ns.direct[i] = connect(ns.t, ns.servers[i].Addr())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return ns.direct[i].Do(ctx, ns.direct[i].B().Arbitrary(args...).Build())
}

// connect returns a client of one server, to be closed.
func connect(t testing.TB, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
		ClientSetInfo: rueidis.DisableClientSetInfo,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// text is the string reply to a command, empty for nil.
func (ns *nodes) text(i int, args ...string) string {
	ns.t.Helper()
	s, err := ns.do(i, args...).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		ns.t.Fatalf("node %d: %v: %v", i+1, args, err)
	}
	return s
}

func key(name string) string { return "redlock:{" + name + "}" }

// held is the lease that node i stores for a name.
func (ns *nodes) held(i int, name string) string {
	ns.t.Helper()
	return ns.text(i, "GET", key(name))
}

// ttl is how long the lease on node i lasts.
func (ns *nodes) ttl(i int, name string) time.Duration {
	ns.t.Helper()
	ms, err := ns.do(i, "PTTL", key(name)).AsInt64()
	if err != nil {
		ns.t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// leases are the keys of all leases on node i.
func (ns *nodes) leases(i int) []string {
	ns.t.Helper()
	keys, err := ns.do(i, "KEYS", "redlock:{*}").AsStrSlice()
	if err != nil {
		ns.t.Fatal(err)
	}
	return keys
}

// all are the numbers of all nodes.
func (ns *nodes) all() []int {
	var all []int
	for i := range ns.servers {
		all = append(all, i)
	}
	return all
}

// empty waits until the given nodes store no lease.
func (ns *nodes) empty(within time.Duration, which ...int) {
	ns.t.Helper()
	for _, i := range which {
		await.True(ns.t, within, fmt.Sprintf("node %d stores no lease", i+1), func() bool {
			return len(ns.leases(i)) == 0
		})
	}
}

// occupy stores somebody else's lease on a node.
func (ns *nodes) occupy(name, id string, ttl time.Duration, which ...int) {
	ns.t.Helper()
	for _, i := range which {
		ns.text(i, "SET", key(name), strings.Repeat(id, 32)+":7 rival", "PX", fmt.Sprint(ttl.Milliseconds()))
	}
}

// forget deletes a lease on nodes behind its holder's back.
func (ns *nodes) forget(name string, which ...int) {
	ns.t.Helper()
	for _, i := range which {
		if err := ns.do(i, "DEL", key(name)).Error(); err != nil {
			ns.t.Fatal(err)
		}
	}
}

func (ns *nodes) freeze(which ...int) {
	ns.t.Helper()
	for _, i := range which {
		if err := ns.servers[i].Freeze(); err != nil {
			ns.t.Fatal(err)
		}
	}
}

func (ns *nodes) thaw(which ...int) {
	ns.t.Helper()
	for _, i := range which {
		if err := ns.servers[i].Thaw(); err != nil {
			ns.t.Fatal(err)
		}
	}
}

func (ns *nodes) kill(which ...int) {
	ns.t.Helper()
	for _, i := range which {
		if err := ns.servers[i].Kill(); err != nil {
			ns.t.Fatal(err)
		}
	}
}

func (ns *nodes) restart(which ...int) {
	ns.t.Helper()
	for _, i := range which {
		if err := ns.servers[i].Restart(ns.t.Context()); err != nil {
			ns.t.Fatal(err)
		}
		if ns.direct[i] != nil {
			ns.direct[i].Close()
			ns.direct[i] = nil
		}
	}
}

// mode sets what becomes of a direction at the given proxies.
func (ns *nodes) mode(d faultproxy.Direction, m faultproxy.Mode, which ...int) {
	for _, i := range which {
		ns.proxies[i].SetMode(d, m)
	}
}

// delay sets the time of a round trip, half of it each way.
func (ns *nodes) delay(rtt time.Duration, which ...int) {
	for _, i := range which {
		ns.proxies[i].SetDelay(faultproxy.ToServer, rtt/2)
		ns.proxies[i].SetDelay(faultproxy.ToClient, rtt/2)
	}
}

// warm connects a client to all nodes.
func warm(t testing.TB, lk *redlock.Locker) {
	t.Helper()
	release(t, take(t, lk, "warm-up", nil))
}

func take(t testing.TB, lk *redlock.Locker, name string, o *redlock.AcquireOptions) *redlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := lk.Acquire(ctx, name, o)
	if err != nil {
		t.Fatalf("acquire %s: %v", name, err)
	}
	return l
}

func release(t testing.TB, l *redlock.Lease) {
	t.Helper()
	if err := l.Release(context.Background()); err != nil {
		t.Errorf("release %s: %v", l.Name(), err)
	}
}

// over waits until the context of l has ended.
func over(t testing.TB, l *redlock.Lease) {
	t.Helper()
	await.True(t, patience, "the lease has ended", func() bool { return l.Context().Err() != nil })
}

// within fails if f takes longer than a bound and the slack.
func within(t testing.TB, bound time.Duration, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > bound+slack {
		t.Errorf("%s took %v, bound %v", what, took, bound)
	}
}

// is fails unless err is all of want and none of not.
func is(t testing.TB, err error, want []error, not ...error) {
	t.Helper()
	for _, target := range want {
		if !errors.Is(err, target) {
			t.Errorf("error %v, want %q", err, target)
		}
	}
	for _, target := range not {
		if errors.Is(err, target) {
			t.Errorf("error %v must not be %q", err, target)
		}
	}
}

// votes are the outcomes in err by node, in the order of the nodes.
func votes(t testing.TB, err error) []redlock.Vote {
	t.Helper()
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		t.Fatalf("%v is no QuorumError", err)
	}
	return q.Votes
}

// pass lets time pass that is part of what is tested: how long a holder works.
func pass(d time.Duration) { <-time.After(d) }

// log is an observer that remembers.
type log struct {
	mu     sync.Mutex
	events []redlock.Event
}

func (l *log) observe(e redlock.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// count is how many events of a kind there were, of a name if it is not empty.
func (l *log) count(kind redlock.EventKind, name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.events {
		if e.Kind == kind && (name == "" || e.Name == name) {
			n++
		}
	}
	return n
}

// nodes are the nodes that events of a kind named.
func (l *log) nodes(kind redlock.EventKind) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == kind {
			names = append(names, e.Node)
		}
	}
	return names
}

// await waits until more than before such events were seen.
func (l *log) await(t testing.TB, kind redlock.EventKind, name string, before int) {
	t.Helper()
	await.True(t, patience, fmt.Sprintf("event %q", kind), func() bool { return l.count(kind, name) > before })
}
