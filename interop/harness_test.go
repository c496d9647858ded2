// Package interop tests that, with plain keys, this project excludes and is
// excluded by the Redlock clients of others on the same servers: redsync for
// Go, and the npm packages redlock and ioredis for Node.js.
//
// They exclude each other because all of them set the lock's own name, as a
// string, only if it does not exist, with an expiry, and delete it only by
// comparison. The tests are named after what must hold; each runs on one, three
// and five real servers.
package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

const (
	// patience is for what must happen and has no bound of its own.
	patience = 20 * time.Second
	// slack is what a busy machine may add to a bound.
	slack = 2 * time.Second
	// longTTL is longer than any test.
	longTTL = 30 * time.Second
	// shortTTL is for leases that are to expire. A node timeout is a part of it,
	// so it cannot be very short on a busy machine.
	shortTTL = 1500 * time.Millisecond
)

func TestMain(m *testing.M) {
	logging.Disable() // of connections to servers that a test has killed
	if os.Getenv(holderEnv) != "" {
		os.Exit(holdUntilKilled())
	}
	code := m.Run()
	if err := removePackages(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// instant is a time on the host's monotonic clock, in nanoseconds. All processes
// of a host share it, those of Node.js too (process.hrtime).
type instant int64

func now() instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock exists on every system that these tests run on
	}
	return instant(ts.Nano())
}

func (i instant) add(d time.Duration) instant { return i + instant(d) }

// errRefused: a quorum of nodes said that others have the name.
var errRefused = errors.New("the name is taken")

// client is a Redlock client of one kind.
type client interface {
	// try makes one attempt. The error is errRefused if others hold the name.
	try(name string, ttl time.Duration) (held, error)
	// wait waits for other holders until ctx ends. The lock is not renewed.
	wait(ctx context.Context, name string, ttl time.Duration) (held, error)
	// close gives up the connections.
	close()
}

// held is a lock that some client believes to hold.
type held interface {
	// from and until bound the time in which its holder may act, unless it calls
	// release before.
	from() instant
	until() instant
	extend() error
	// release returns when it was called.
	release() (instant, error)
}

// kind is one of the implementations that are to exclude each other.
type kind struct {
	name string
	open func(t *testing.T, addrs []string) client
}

var (
	ours    = kind{"redlock", openOurs}
	redsync = kind{"redsync", openRedsync}
	nodejs  = kind{"node-redlock", openNode}
	rivals  = []kind{redsync, nodejs}
)

// sizes are how many servers each test runs on.
var sizes = []int{1, 3, 5}

// onEachSize runs test on one, three and five fresh servers.
func onEachSize(t *testing.T, test func(t *testing.T, ns *nodes)) {
	for _, n := range sizes {
		t.Run(fmt.Sprintf("nodes=%d", n), func(t *testing.T) { test(t, start(t, n)) })
	}
}

// eachPair runs test for us before each rival, and for each rival before us.
func eachPair(t *testing.T, ns *nodes, test func(t *testing.T, name string, first, second kind)) {
	for _, rival := range rivals {
		for _, pair := range [][2]kind{{ours, rival}, {rival, ours}} {
			name := pair[0].name + " before " + pair[1].name
			t.Run(name, func(t *testing.T) {
				test(t, strings.ReplaceAll(fmt.Sprintf("%s/%d", name, len(ns.servers)), " ", "-"), pair[0], pair[1])
			})
		}
	}
}

// nodes are the servers of one test, and a connection to each past all locks.
type nodes struct {
	t       *testing.T
	servers []*redisserver.Server
	direct  []*redis.Client
}

func start(t *testing.T, n int) *nodes {
	t.Helper()
	ns := &nodes{t: t, servers: redisserver.StartN(t, n)}
	for _, s := range ns.servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { _ = c.Close() })
		ns.direct = append(ns.direct, c)
	}
	return ns
}

func (ns *nodes) addrs() []string {
	var addrs []string
	for _, s := range ns.servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func (ns *nodes) quorum() int { return len(ns.servers)/2 + 1 }

// open returns a client of all nodes that ends with the test.
func (ns *nodes) open(t *testing.T, k kind) client {
	t.Helper()
	c := k.open(t, ns.addrs())
	t.Cleanup(c.close)
	return c
}

// do sends a command to node i.
func (ns *nodes) do(i int, args ...any) any {
	ns.t.Helper()
	reply, err := ns.direct[i].Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		ns.t.Fatalf("node %d: %v: %v", i+1, args, err)
	}
	return reply
}

// forget deletes a key on all nodes, as expiry does.
func (ns *nodes) forget(name string) {
	ns.t.Helper()
	for i := range ns.servers {
		ns.do(i, "DEL", name)
	}
}

// kill ends the first so many servers.
func (ns *nodes) kill(count int) {
	ns.t.Helper()
	for _, s := range ns.servers[:count] {
		if err := s.Kill(); err != nil {
			ns.t.Fatal(err)
		}
	}
}

// key is all there is to know about a key on one node: its kind and value, and
// the moment at which it expires in ms of the node's clock, or -1.
type key struct {
	dump    any
	expires any
}

// look returns what the nodes have under a name.
func (ns *nodes) look(name string) []key {
	ns.t.Helper()
	var keys []key
	for i := range ns.servers {
		keys = append(keys, key{ns.do(i, "DUMP", name), ns.do(i, "PEXPIRETIME", name)})
	}
	return keys
}

// lookAtAll returns what the nodes have under a name that is held, once the last
// of them has it: a client holds as soon as most have.
func (ns *nodes) lookAtAll(t *testing.T, name string) (keys []key) {
	t.Helper()
	await.True(t, patience, "every node has "+name, func() bool {
		keys = ns.look(name)
		return !slices.ContainsFunc(keys, func(k key) bool { return k.dump == nil })
	})
	return keys
}

// same fails if the nodes do not have what they had.
func (ns *nodes) same(t *testing.T, name, after string, before []key) {
	t.Helper()
	for i, k := range ns.look(name) {
		if k != before[i] {
			t.Errorf("node %d after %s: %q until %v, before it %q until %v",
				i+1, after, k.dump, k.expires, before[i].dump, before[i].expires)
		}
	}
}

// options are those of our clients: plain keys, and a node timeout that a busy
// machine does not reach.
func options() *redlock.Options {
	return &redlock.Options{
		PlainKeys: true, NodeTimeout: 500 * time.Millisecond, ConnectWait: slack,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// openLocker returns our client itself, for tests of what only it has.
func (ns *nodes) openLocker(t *testing.T) *redlock.Locker {
	t.Helper()
	return ns.open(t, ours).(*ourClient).lk
}

func mustTry(t *testing.T, c client, name string, ttl time.Duration) held {
	t.Helper()
	h, err := c.try(name, ttl)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return h
}

func mustRelease(t *testing.T, h held) {
	t.Helper()
	if _, err := h.release(); err != nil {
		t.Errorf("release: %v", err)
	}
}
