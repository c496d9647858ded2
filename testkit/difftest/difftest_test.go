// Package difftest compares the Lua scripts of redisnode, on a real server and
// on the embedded one, with their twin in Go, internal/nodemodel.
package difftest

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
	"example.com/redlock/redisnode"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/embedded"
	"example.com/redlock/testkit/redisserver"
)

const (
	maxTTL = 2000 // ms
	// toleranceMS is how far deadlines may be apart: a server reads its clock
	// once for TIME and once for expiry.
	toleranceMS = 4
)

// world is a server and the model that should be equal to it.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	raw     rueidis.Client
	node    *redisnode.Node
	restart func()

	model   *nodemodel.Node
	keys    node.Keyspace
	guard   string
	foreign map[string]string // SHA-1 of each foreign value, by the model's name for it

	answers   map[string]int // by kind and code
	standings map[node.Standing]int
	ambiguous int
}

func TestDifferentialRealServer(t *testing.T) {
	server, err := redisserver.Start(t.Context(), redisserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	run(t, server.URL(), server.Addr(), 2000, func() {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDifferentialEmbeddedServer(t *testing.T) {
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	run(t, server.URL(), server.Addr(), 200, func() {
		if err := server.Restart(false); err != nil {
			t.Fatal(err)
		}
	})
}

// run drives a server and the model with the same operations. It restarts the
// server once in restartEvery batches.
func run(t *testing.T, url, addr string, restartEvery int, restart func()) {
	ops := 10_000
	if os.Getenv("REDLOCK_SOAK") != "" {
		ops = 100_000
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("REDLOCK_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("REDLOCK_SEED=%d", seed)

	raw, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, AlwaysRESP2: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	n, err := redisnode.Open(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })

	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), raw: raw, node: n, restart: restart,
		model: nodemodel.New("?"), foreign: map[string]string{},
		answers: map[string]int{}, standings: map[node.Standing]int{},
	}
	w.hello()
	for done := 0; done < ops; {
		w.keys.Plain = w.rnd.IntN(4) == 0
		if w.rnd.IntN(3) == 0 {
			w.meddle(restartEvery)
		}
		done += w.batch()
		w.compareState()
	}
	w.report(ops)
}

// report prints how often everything occurred; what never did was not tested.
func (w *world) report(ops int) {
	for _, key := range slices.Sorted(maps.Keys(w.answers)) {
		w.t.Logf("%7d %s", w.answers[key], key)
	}
	w.t.Logf("%7d batches not compared because a key was just expiring; hellos: %v", w.ambiguous, w.standings)
	if w.ambiguous > ops/50 {
		w.t.Error("too many batches were not compared")
	}
	expected := map[node.Kind]string{
		node.Acquire: "GHBFWSNE", node.Extend: "YHBFWANE", node.Join: "YHBFWSNE", node.Raise: "YHBFWANE",
		node.Replace: "GHBFWASNE", node.Release: "YHBFWA", node.Break: "YHBFWA", node.Inspect: "HBFWA",
	}
	for kind, codes := range expected {
		for _, code := range []byte(codes) {
			if key := coverageKey(kind, node.Code(code)); w.answers[key] == 0 {
				w.t.Errorf("never occurred: %s", key)
			}
		}
	}
	for _, s := range []node.Standing{node.StandingOK, node.StandingNew, node.StandingAdopted, node.StandingMismatch} {
		if w.standings[s] == 0 {
			w.t.Errorf("never occurred: hello %s", s)
		}
	}
}

var kindNames = map[node.Kind]string{
	node.Acquire: "acquire", node.Extend: "extend", node.Join: "join", node.Raise: "raise",
	node.Replace: "replace", node.Release: "release", node.Break: "break", node.Inspect: "inspect",
}

func coverageKey(kind node.Kind, code node.Code) string {
	return kindNames[kind] + ": " + code.String()
}

func (w *world) do(args ...string) rueidis.RedisMessage {
	w.t.Helper()
	for try := 1; ; try++ {
		m, err := w.raw.Do(context.Background(), w.raw.B().Arbitrary(args...).Build()).ToMessage()
		if err == nil || rueidis.IsRedisNil(err) {
			return m
		}
		if try == 3 { // the first after a restart finds a dead connection
			w.t.Fatalf("%q: %v", args, err)
		}
	}
}

func (w *world) text(args ...string) string {
	m := w.do(args...)
	s, _ := m.ToString()
	return s
}

func (w *world) number(args ...string) int64 {
	w.t.Helper()
	m := w.do(args...)
	i, err := m.AsInt64()
	if err != nil {
		w.t.Fatalf("%q: %v", args, err)
	}
	return i
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

var (
	ids = []string{
		"00000000000000000000000000000001", "0123456789abcdef0123456789abcdef", "ffffffffffffffffffffffffffffffff",
	}
	// All with the same counter or others, it does not matter; all bytes do.
	names  = []string{"a", "{a}b", "a{b", "invoice/42 or so", "\x00\xff\r\n", "~broken"}
	owners = []string{"", "", "host", "host 12 cron", " leading", "\x00\n\xfe end "}

	maxExact = uint64(node.MaxExact)
)

var usualConf = node.Conf{Epoch: 1, Protocol: 1, N: 3, Q: 2, MaxTTL: maxTTL, Members: "m"}

// hello introduces the client with a conf that usually is the last one.
func (w *world) hello() {
	w.keys.Namespace = "redlock"
	conf := usualConf
	conf.Epoch = pick[uint64](w.rnd, 1, 1, 1, 1, 2)
	w.model.Restart(w.runID(), true) // restarts may be what we were called for
	h := node.Hello{Keys: w.keys, Conf: conf, Look: w.rnd.IntN(3) == 0}
	got, err := w.node.Hello(w.t.Context(), h)
	if err != nil { // the end of a connection may be noticed while in use
		got, err = w.node.Hello(w.t.Context(), h)
	}
	if err != nil {
		w.t.Fatalf("hello: %v", err)
	}
	want := w.model.Hello(h, got.Time)
	if got.Standing != want.Standing || got.Guard != want.Guard || got.Previous != want.Previous || got.RunID != want.RunID ||
		got.Role != want.Role || got.Mode != want.Mode || got.MaxMemory != want.MaxMemory || got.MaxMemoryPolicy != want.MaxMemoryPolicy {
		w.t.Fatalf("hello\nserver %+v\n model %+v", got, want)
	}
	w.standings[got.Standing]++
	if !h.Look {
		w.guard = got.Guard
	}
}

func (w *world) runID() string {
	for _, line := range strings.Split(w.text("INFO", "server"), "\r\n") {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return id
		}
	}
	w.t.Fatal("no run_id")
	return ""
}

// now is the server's time.
func (w *world) now() int64 {
	m := w.do("TIME")
	parts, err := m.AsStrSlice()
	if err != nil {
		w.t.Fatal(err)
	}
	s, _ := strconv.ParseInt(parts[0], 10, 64)
	us, _ := strconv.ParseInt(parts[1], 10, 64)
	return s*1e6 + us
}

// settle waits until no key is about to expire, so that the server and the
// model agree on what has.
func (w *world) settle() {
	await.True(w.t, 5*time.Second, "no key is about to expire", func() bool {
		now := w.now() / 1000
		for _, key := range w.leaseKeys() {
			if v, ok := w.model.Get(key, 0); ok && v.Expires != 0 {
				if left := v.Expires - now; left < 25 && left >= -2*toleranceMS {
					return false
				}
			}
		}
		return true
	})
}

func (w *world) leaseKeys() []string {
	var keys []string
	for _, name := range names {
		for _, plain := range []bool{false, true} {
			keys = append(keys, node.Keyspace{Namespace: w.keys.Namespace, Plain: plain}.Lease(name))
		}
	}
	return keys
}

// batch sends a random call to both and compares the replies.
func (w *world) batch() int {
	call := &node.Call{Keys: w.keys, Guard: w.guard, MaxTTL: maxTTL}
	if w.rnd.IntN(12) == 0 {
		call.Guard = pick(w.rnd, "", "x", w.guard+"x", strings.Replace(w.guard, "|", "0|", 1))
	}
	for range 1 + w.rnd.IntN(8) {
		call.Ops = append(call.Ops, w.op())
	}
	w.settle()
	got, err := w.node.Call(w.t.Context(), call)
	if err != nil {
		w.t.Fatalf("call: %v\n%+v", err, call)
	}
	if w.expiring(got.Time) {
		w.ambiguous++
		w.adopt()
		return len(call.Ops)
	}
	before := w.model.Clone()
	want := w.model.Apply(call, got.Time)
	if got.Guard != want.Guard {
		w.t.Fatalf("guard: server %q, model %q", got.Guard, want.Guard)
	}
	for i, op := range call.Ops {
		w.answers[coverageKey(op.Kind, got.Answers[i].Code)]++
		if !w.sameAnswer(got.Answers[i], want.Answers[i]) {
			w.t.Fatalf("operation %d of\n%+v\nserver %+v\n model %+v\nstate before %q",
				i, call, got.Answers[i], want.Answers[i], before.AppendState(nil, got.Time))
		}
	}
	return len(call.Ops)
}

func (w *world) sameAnswer(got, want node.Answer) bool {
	if want.Code == node.Foreign {
		want.Holder = w.foreign[want.Holder]
	}
	if want.Code == node.Failed {
		want.Err = got.Err // the words are each engine's own
	}
	if delta := got.Remaining - want.Remaining; (got.Remaining < 0) != (want.Remaining < 0) || max(delta, -delta) > toleranceMS {
		return false
	}
	got.Remaining = want.Remaining
	return got == want
}

func (w *world) expiring(now int64) bool {
	for _, key := range w.leaseKeys() {
		if v, ok := w.model.Get(key, 0); ok && v.Expires != 0 && max(v.Expires-now/1000, now/1000-v.Expires) <= toleranceMS {
			return true
		}
	}
	return false
}

func (w *world) op() node.Op {
	op := node.Op{
		Kind: node.Kind(1 + w.rnd.IntN(int(node.Inspect))), Name: pick(w.rnd, names...), ID: pick(w.rnd, ids...),
	}
	op.TTL = pick[int64](w.rnd, 1, 30, 60, 500, 1000, 1500, maxTTL)
	if w.rnd.IntN(30) == 0 {
		op.TTL = pick[int64](w.rnd, 0, -5)
	}
	number := pick(w.rnd, 0, 1, 1000, uint64(time.Now().UnixMicro()), uint64(time.Now().Add(time.Hour).UnixMicro()))
	if w.rnd.IntN(30) == 0 {
		number = pick(w.rnd, maxExact-1, maxExact, 1<<63)
	}
	stored, _ := w.storedBy(op)
	switch op.Kind {
	case node.Acquire:
		op.Proposal, op.Owner = number, pick(w.rnd, owners...)
	case node.Join:
		op.Token, op.Owner = number, pick(w.rnd, owners...)
	case node.Raise:
		op.TTL, op.Token, op.Stored = 0, number, stored
		if w.rnd.IntN(3) == 0 {
			op.Stored = pick(w.rnd, 0, 1, stored+1, maxExact)
		}
	case node.Replace:
		op.Proposal, op.NewID, op.Owner = number, pick(w.rnd, ids...), pick(w.rnd, owners...)
	case node.Break:
		op.TTL, op.Now = 0, w.rnd.IntN(3) == 0
	case node.Release, node.Inspect:
		op.TTL = 0
	}
	if op.Kind.GoesStale() && w.rnd.IntN(4) == 0 {
		op.NotAfter = time.Now().Add(pick(w.rnd, -time.Minute, time.Minute)).UnixMicro()
	}
	if op.Kind.GoesStale() && w.rnd.IntN(60) == 0 {
		op.NotAfter = pick[int64](w.rnd, -1, node.MaxExact)
	}
	return op
}

// storedBy is the number in the lease of op.
func (w *world) storedBy(op node.Op) (uint64, bool) {
	v, ok := w.model.Get(w.keys.Lease(op.Name), 0)
	if !ok {
		return 1, false
	}
	rest, ok := strings.CutPrefix(v.Text, op.ID+":")
	digits, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 1, false
	}
	return n, true
}
