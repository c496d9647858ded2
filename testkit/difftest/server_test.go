package difftest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"example.com/redlock/internal/node"
	"example.com/redlock/redisnode"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// fixture is a real server with a node on it.
type fixture struct {
	t      testing.TB
	server *redisserver.Server
	raw    rueidis.Client
	node   *redisnode.Node
	keys   node.Keyspace
	guard  string
}

func setUp(t testing.TB) *fixture {
	server := startServer(t)
	raw, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true, PipelineMultiplex: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	f := &fixture{t: t, server: server, raw: raw, keys: node.Keyspace{Namespace: "redlock"}}
	f.node = f.open(server.URL())
	f.hello()
	return f
}

func startServer(t testing.TB, args ...string) *redisserver.Server {
	t.Helper()
	server, err := redisserver.Start(t.Context(), redisserver.Options{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	return server
}

func (f *fixture) open(url string) *redisnode.Node {
	f.t.Helper()
	n, err := redisnode.Open(url, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { n.Close() })
	return n
}

func (f *fixture) hello() {
	f.t.Helper()
	h, err := f.node.Hello(f.t.Context(), node.Hello{Keys: f.keys, Conf: usualConf, Intent: node.Declare})
	if err != nil {
		f.t.Fatal(err)
	}
	f.guard = h.Guard
}

func (f *fixture) call(ops ...node.Op) *node.Call {
	return &node.Call{Keys: f.keys, Guard: f.guard, MaxTTL: maxTTL, Assign: 2000, Life: 5000, Ops: ops}
}

// answers carries ops out and fails the test if that is not possible.
func (f *fixture) answers(ops ...node.Op) []node.Answer {
	f.t.Helper()
	r, err := f.node.Call(f.t.Context(), f.call(ops...))
	if err != nil {
		f.t.Fatal(err)
	}
	return r.Answers
}

// want carries one operation out and compares the code of its answer.
func (f *fixture) want(code node.Code, op node.Op) node.Answer {
	f.t.Helper()
	a := f.answers(op)[0]
	if a.Code != code {
		f.t.Fatalf("%+v: got %+v, want %v", op, a, code)
	}
	return a
}

// try carries one operation out within d.
func try(f *fixture, n *redisnode.Node, d time.Duration, op node.Op) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_, err := n.Call(ctx, f.call(op))
	return err
}

func (f *fixture) do(args ...string) string {
	f.t.Helper()
	m, err := f.raw.Do(f.t.Context(), f.raw.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		f.t.Fatalf("%q: %v", args, err)
	}
	if n, err := m.AsInt64(); err == nil {
		return fmt.Sprint(n)
	}
	s, _ := m.ToString()
	return s
}

func acquire(id string, ttl int64) node.Op {
	return node.Op{Kind: node.Acquire, Name: "x", ID: id, TTL: ttl}
}

func op(kind node.Kind, id string) node.Op { return node.Op{Kind: kind, Name: "x", ID: id, TTL: 1000} }

// waitFor has a waiter of clientA stand in line for the name.
func waitFor(name, waiter string, beat uint64) node.Op {
	return node.Op{Kind: node.Wait, Name: name, ID: waiter, TTL: 1000, Place: node.Place{Waiter: waiter, Client: clientA, Beat: beat}}
}

func wantCallError(t testing.TB, err error, sent, denied bool) {
	t.Helper()
	var call *node.CallError
	if !errors.As(err, &call) || call.Sent != sent || call.Denied != denied {
		t.Errorf("%v: got %+v, want sent %v, denied %v", err, call, sent, denied)
	}
}

func TestB77ScriptFlushBeforeEachOperation(t *testing.T) {
	f := setUp(t)
	for _, o := range []node.Op{acquire(idA, 1000), op(node.Extend, idA), op(node.Release, idA)} {
		f.do("SCRIPT", "FLUSH")
		if a := f.answers(o)[0]; a.Code != node.Granted && a.Code != node.Done {
			t.Errorf("%+v: got %+v", o, a)
		}
	}
	f.do("SCRIPT", "FLUSH")
	f.hello()
}

func TestB05B06AcquireTwiceIsGrantedTwice(t *testing.T) {
	f := setUp(t)
	first := f.want(node.Granted, acquire(idA, 500))
	second := f.want(node.Granted, acquire(idA, 1500))
	if first.Token != second.Token {
		t.Errorf("tokens %d, %d", first.Token, second.Token)
	}
	// The caller counts from the second call on, with its ttl.
	f.wantRemaining(1500)
	f.want(node.Granted, acquire(idA, 100))
	f.wantRemaining(1500)
}

func (f *fixture) awaitExpiry() {
	f.t.Helper()
	await.True(f.t, time.Second, "the lease expires", func() bool { return f.do("EXISTS", f.keys.Lease("x")) == "0" })
}

// wantRemaining checks the key's remaining time: at most ms, and little less.
func (f *fixture) wantRemaining(ms int64) {
	f.t.Helper()
	var left int64
	fmt.Sscan(f.do("PTTL", f.keys.Lease("x")), &left)
	if left > ms || left < ms-250 {
		f.t.Errorf("%d ms left, want %d", left, ms)
	}
}

func TestB13OnlyTheOwnerReleasesAndExtends(t *testing.T) {
	f := setUp(t)
	f.want(node.Granted, acquire(idA, 20))
	f.awaitExpiry()
	f.want(node.Granted, acquire(idB, 1000))
	for _, kind := range []node.Kind{node.Release, node.Extend} {
		if a := f.want(node.Held, op(kind, idA)); a.Holder != idB {
			t.Errorf("holder %q", a.Holder)
		}
	}
	f.want(node.Held, node.Op{Kind: node.Inspect, Name: "x"})
	// B104: an id that the holder's begins with is another id.
	f.want(node.Held, op(node.Release, idB[:31]))
}

func TestB25ExtendAndReleaseOfAnExpiredLease(t *testing.T) {
	f := setUp(t)
	f.want(node.Granted, acquire(idA, 20))
	f.awaitExpiry()
	f.want(node.Absent, op(node.Extend, idA))
	f.want(node.Absent, op(node.Release, idA))
	f.want(node.Absent, node.Op{Kind: node.Inspect, Name: "x"})
}

func TestB32B34RemainingTimeIsInMilliseconds(t *testing.T) {
	f := setUp(t)
	f.want(node.Granted, acquire(idA, 1000))
	f.wantRemaining(1000)
	extend := op(node.Extend, idA)
	extend.TTL = 1800
	f.want(node.Done, extend)
	f.wantRemaining(1800)
	extend.TTL = 1 // never shortens
	f.want(node.Done, extend)
	f.wantRemaining(1800)
	for _, ttl := range []int64{0, -1} {
		f.want(node.Failed, node.Op{Kind: node.Acquire, Name: "y", ID: idA, TTL: ttl})
	}
	if f.do("EXISTS", f.keys.Lease("y")) != "0" {
		t.Error("a refused ttl left a key")
	}
}

// B35: the commands of a call are one step on the server, and no more of them
// than the protocol needs: also for names that nobody waits for, while somebody
// waits for another.
func TestB35LeanPath(t *testing.T) {
	f := setUp(t)
	const n = 16
	var acquires, releases []node.Op
	for i := range n {
		name := fmt.Sprint("n", i)
		acquires = append(acquires, node.Op{Kind: node.Acquire, Name: name, ID: idA, TTL: 1000})
		releases = append(releases, node.Op{Kind: node.Release, Name: name, ID: idA})
	}
	f.answers(acquires[0], releases[0])

	f.do("CONFIG", "RESETSTAT")
	f.answers(acquires...)
	f.wantStats("evalsha=1 exists=1 get=1 hmget=1 hset=1 info=1 set=16 time=1")
	f.do("CONFIG", "RESETSTAT")
	f.answers(releases...)
	f.wantStats("del=16 evalsha=1 exists=1 get=16 time=1")

	f.want(node.Granted, acquire(idB, 1000))
	f.want(node.Held, waitFor("x", waiterA, 1))
	f.do("CONFIG", "RESETSTAT")
	f.answers(acquires...)
	f.wantStats("evalsha=1 exists=17 get=1 hmget=1 hset=1 info=1 set=16 time=1")
}

func (f *fixture) wantStats(want string) {
	f.t.Helper()
	got := map[string]string{}
	for _, line := range strings.Split(f.do("INFO", "commandstats"), "\r\n") {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		got[name] = calls
	}
	var list []string
	for _, name := range []string{"del", "eval", "evalsha", "exists", "get", "hdel", "hmget", "hset", "info", "pexpire", "pttl", "set", "time", "zadd", "zcard"} {
		if got[name] != "" {
			list = append(list, name+"="+got[name])
		}
	}
	if s := strings.Join(list, " "); s != want {
		f.t.Errorf("commands %s\n    want %s", s, want)
	}
}

func TestOutOfMemory(t *testing.T) {
	f := setUp(t)
	granted := f.want(node.Granted, acquire(idA, 500))
	f.do("CONFIG", "SET", "maxmemory", "1")
	if a := f.want(node.Failed, acquire(idB, 500)); !strings.Contains(a.Err, "OOM") {
		t.Errorf("%+v", a)
	}
	f.want(node.Failed, node.Op{Kind: node.Acquire, Name: "y", ID: idB, TTL: 500})
	f.want(node.Done, op(node.Extend, idA))
	f.wantRemaining(1000)
	raise := node.Op{Kind: node.Raise, Name: "x", ID: idA, Stored: granted.Token, Token: granted.Token + 1000}
	f.want(node.Done, raise)
	f.want(node.Done, op(node.Release, idA))
	f.do("CONFIG", "SET", "maxmemory", "0")
	if a := f.want(node.Granted, acquire(idB, 500)); a.Token <= raise.Token {
		t.Errorf("token %d after a raise to %d", a.Token, raise.Token)
	}
	if f.do("EXISTS", f.keys.Lease("y")) != "0" {
		t.Error("a refused acquire left a key")
	}
}

// A server without memory cannot keep what its clock shows. It is greeted all the same.
func TestHelloOutOfMemory(t *testing.T) {
	f := setUp(t)
	f.do("CONFIG", "SET", "maxmemory", "1")
	r, err := f.node.Hello(t.Context(), node.Hello{Keys: f.keys, Conf: usualConf, Record: "-5 6 7"})
	if err != nil || r.Standing != node.StandingOK || r.Record != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// One operation fails, its neighbours do not, and it has written nothing.
func TestFailingAlone(t *testing.T) {
	f := setUp(t)
	f.do("HSET", f.keys.Lease("hash"), "a", "b")
	codes := ""
	for _, a := range f.answers(
		acquire(idA, 500), node.Op{Kind: node.Acquire, Name: "hash", ID: idA, TTL: 500}, op(node.Extend, idA),
		node.Op{Kind: node.Acquire, Name: "z", ID: idA, TTL: 0}, node.Op{Kind: node.Break, Name: "hash", Now: true}, op(node.Release, idA),
	) {
		codes += string(a.Code)
	}
	if codes != "GWYEWY" {
		t.Error(codes)
	}
}

func TestManyOperationsInOneCall(t *testing.T) {
	f := setUp(t)
	var ops []node.Op
	for i := range 1000 {
		ops = append(ops, node.Op{Kind: node.Acquire, Name: fmt.Sprint("n", i), ID: idA, TTL: 1000})
	}
	for i, a := range f.answers(ops...) {
		if a.Code != node.Granted {
			t.Fatalf("%d: %+v", i, a)
		}
	}
}

// A token is never given out twice, within a call neither.
func TestTokensWithinACall(t *testing.T) {
	f := setUp(t)
	a := f.answers(acquire(idA, 500), op(node.Release, idA), acquire(idB, 500), op(node.Release, idB))
	if a[0].Token == 0 || a[2].Token <= a[0].Token {
		t.Errorf("%+v", a)
	}
}

func TestB79Permissions(t *testing.T) {
	f := setUp(t)
	f.do("ACL", "SETUSER", "minimal", "on", ">pw", "~redlock:*", "&redlock:wake:*", "+eval", "+time", "+info", "+get", "+set",
		"+del", "+exists", "+pttl", "+pexpire", "+hget", "+hmget", "+hset", "+hdel", "+hlen", "+publish", "+subscribe", "+zadd", "+zrem",
		"+zcard", "+zcount", "+zrange", "+zrangebyscore", "+zrevrange", "+zrank", "+zscore")
	f.do("ACL", "SETUSER", "noinfo", "on", ">pw", "~*", "+@all", "-info")
	f.do("ACL", "SETUSER", "nokeys", "on", ">pw", "~other:*", "+@all")
	f.do("ACL", "SETUSER", "nochannels", "on", ">pw", "~*", "resetchannels", "+@all")
	f.do("ACL", "SETUSER", "noeval", "on", ">pw", "~*", "+@all", "-@scripting")

	of := func(user string) *redisnode.Node {
		return f.open("redis://" + user + ":pw@" + f.server.Addr())
	}
	hello := node.Hello{Keys: f.keys, Conf: usualConf, Intent: node.Declare}
	if _, err := of("minimal").Hello(t.Context(), hello); err != nil {
		t.Error(err)
	}
	if err := try(f, of("minimal"), time.Second, acquire(idA, 500)); err != nil {
		t.Error(err)
	}
	for _, user := range []string{"noinfo", "nokeys", "noeval", "nobody"} {
		n := of(user)
		_, err := n.Hello(t.Context(), hello)
		wantCallError(t, err, false, true)
		wantCallError(t, try(f, n, time.Second, acquire(idA, 500)), false, true)
	}
	_, err := of("nochannels").Hello(t.Context(), hello)
	wantCallError(t, err, false, true)
	if !strings.Contains(err.Error(), "PUBLISH, SUBSCRIBE") {
		t.Error(err)
	}
}

func TestOddPassword(t *testing.T) {
	f := setUp(t)
	f.do("ACL", "SETUSER", "b@b", "on", ">p@ss/w?#:%zz [é]", "~*", "+@all")
	if err := try(f, f.open("redis://b@b:p%40ss%2Fw%3F%23%3A%25zz%20[é]@"+f.server.Addr()), time.Second, op(node.Release, idA)); err != nil {
		t.Error(err)
	}
}

func TestDatabase(t *testing.T) {
	f := setUp(t)
	f.want(node.Granted, acquire(idA, 1000))
	f.node = f.open(f.server.URL() + "/3")
	f.want(node.NoGuard, acquire(idB, 1000))
	f.hello()
	f.want(node.Granted, acquire(idB, 1000))
}
