// Package difftest compares the Lua scripts of redisnode, on a real server and
// on the embedded one, with their twin in Go, internal/nodemodel.
package difftest

import (
	"context"
	"fmt"
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
	toleranceMS = 10
)

// world is a server and the model that should be equal to it.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	raw     rueidis.Client
	node    *redisnode.Node
	restart func()
	// embedded servers are never replicas.
	embedded bool

	model *nodemodel.Node
	keys  node.Keyspace
	// guard is what calls expect; shown is what the node showed last.
	guard, shown string
	foreign      map[string]string // SHA-1 of each foreign value, by the model's name for it

	answers    map[string]int // by kind and code
	standings  map[node.Standing]int
	watches    map[string]int
	configured map[string]int
	promotions int
	ambiguous  int
	// crowded is while all want the same name, and nothing else goes wrong.
	crowded  bool
	ears     map[string]*ear
	branches map[string]int // of lines and readers

	// called is the last call that was compared, before the state that it found.
	called *node.Call
	before []byte
}

func TestDifferentialRealServer(t *testing.T) {
	server, err := redisserver.Start(t.Context(), redisserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() })
	run(t, server.URL(), server.Addr(), false, func() {
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
	run(t, server.URL(), server.Addr(), true, func() {
		if err := server.Restart(false); err != nil {
			t.Fatal(err)
		}
	})
}

// connect returns a connection to a server, and the node that is compared on it.
func connect(t *testing.T, url, addr string) (rueidis.Client, *redisnode.Node) {
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
	return raw, n
}

// run drives a server and the model with the same operations. It restarts the
// server now and then, a real one, which takes longer, less often.
func run(t *testing.T, url, addr string, isEmbedded bool, restart func()) {
	ops := 13_000
	if os.Getenv("REDLOCK_SOAK") != "" {
		ops = 130_000
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("REDLOCK_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("REDLOCK_SEED=%d", seed)

	raw, n := connect(t, url, addr)
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), raw: raw, node: n, restart: restart, embedded: isEmbedded,
		model: nodemodel.New("?"), foreign: map[string]string{},
		answers: map[string]int{}, standings: map[node.Standing]int{}, watches: map[string]int{},
		configured: map[string]int{}, ears: map[string]*ear{}, branches: map[string]int{"push": 0, "push by clock": 0, "2 told of a line": 0},
	}
	t.Cleanup(w.deafenAll)
	w.model.Restart(w.runID(), true)
	w.hello()
	restartEvery := 2000
	if isEmbedded {
		restartEvery = 200
	}
	for done := 0; done < ops; {
		if w.rnd.IntN(150) == 0 || w.crowded && w.rnd.IntN(75) == 0 {
			w.crowd()
		}
		if !w.crowded {
			w.keys.Plain = w.rnd.IntN(4) == 0
		}
		if !w.crowded && w.rnd.IntN(3) == 0 {
			w.meddle(restartEvery)
		}
		if w.rnd.IntN(20) == 0 {
			w.meddleWithLine()
		}
		if w.rnd.IntN(10) == 0 {
			w.toggleEar()
		}
		if w.shown != w.guard && (w.crowded || w.rnd.IntN(4) == 0) {
			w.declare() // or nothing would be granted any more
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
	w.t.Logf("%7d batches not compared, because a key was just expiring or the server was slow; hellos: %v", w.ambiguous, w.standings)
	if w.ambiguous > ops/20 {
		w.t.Error("too many batches were not compared")
	}
	for branch, n := range w.branches {
		w.t.Logf("%7d %s", n, branch)
		if n == 0 {
			w.t.Errorf("never occurred: %s", branch)
		}
	}
	expected := map[node.Kind]string{
		node.Wait: "GHBFQWSNET", node.Acquire: "GHBFQWSNET", node.Extend: "YHBFWANE", node.Join: "YHBFWSNET", node.Raise: "YHBFWANET",
		node.Replace: "GHBFWASNET", node.Release: "YHBFWAE", node.Break: "YHBFWA", node.Inspect: "HBFWA",
	}
	for kind, codes := range expected {
		for _, code := range []byte(codes) {
			if key := coverageKey(kind, node.Code(code)); w.answers[key] == 0 {
				w.t.Errorf("never occurred: %s", key)
			}
		}
	}
	for _, s := range []node.Standing{node.StandingOK, node.StandingNew, node.StandingDurable, node.StandingQuarantined, node.StandingMismatch} {
		if w.standings[s] == 0 {
			w.t.Errorf("never occurred: hello %s", s)
		}
	}
	w.t.Logf("watches: %v; configured: %v", w.watches, w.configured)
	if len(w.configured) != 9 {
		w.t.Errorf("only these came of configure: %v", w.configured)
	}
	if !w.embedded && w.promotions == 0 {
		w.t.Error("never promoted")
	}
	if len(w.watches) != 12 {
		w.t.Errorf("only these came of watches: %v", w.watches)
	}
}

var kindNames = map[node.Kind]string{
	node.Acquire: "acquire", node.Extend: "extend", node.Join: "join", node.Raise: "raise",
	node.Replace: "replace", node.Release: "release", node.Break: "break", node.Inspect: "inspect", node.Wait: "wait",
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
	names   = []string{"a", "{a}b", "a{b", "invoice/42 or so", "\x00\xff\r\n", "~broken"}
	nonces  = []string{"00", "5f", "abcdef"}
	records = []string{"-5 6 7", "another"}
	owners  = []string{"", "", "host", "host 12 cron", " leading", "\x00\n\xfe end "}

	maxExact = uint64(node.MaxExact)
)

var usualConf = node.Conf{Epoch: 1, Protocol: 1, N: 3, Q: 2, MaxTTL: maxTTL, Members: "m"}

// hello introduces the client with a conf that usually is the last one.
func (w *world) hello() {
	w.keys.Namespace = "redlock"
	w.introduce(pick(w.rnd, node.Greet, node.Greet, node.Look, node.Declare, node.Declare, node.Suspect, node.Leapt, node.Trust, node.Vouch, node.Vouch, node.Unvouch))
}

func (w *world) introduce(intent node.Intent) {
	conf := usualConf
	conf.Epoch = pick[uint64](w.rnd, 1, 1, 2) // which is no difference
	conf.N = pick(w.rnd, 3, 3, 3, 3, 5)
	h := node.Hello{
		Keys: w.keys, Conf: conf, Nonce: pick(w.rnd, nonces...), Intent: intent, Suspect: pick(w.rnd, w.shown, w.shown, w.shown, "x"),
		Record: pick(w.rnd, "", "", records[0], records[1]), Former: pick(w.rnd, append(records, "", "")...),
	}
	got, err := w.node.Hello(w.t.Context(), h)
	for try := 1; err != nil && try < 3; try++ { // the end of a connection may be noticed while in use
		got, err = w.node.Hello(w.t.Context(), h)
	}
	if err != nil {
		w.t.Fatalf("hello: %v", err)
	}
	want := w.model.Hello(h, got.Time)
	want.Version = got.Version
	if got != want {
		w.t.Fatalf("hello %+v\nserver %+v\n model %+v", h, got, want)
	}
	w.standings[got.Standing]++
	if got.Since > 0 {
		w.watches["hello: counters that began anew"]++
	}
	if h.Record != "" && h.Record != h.Former {
		w.watches[fmt.Sprintf("hello: clock recorded: %v", got.Record == h.Record)]++
	}
	if got.Changed && intent == node.Leapt {
		w.watches[fmt.Sprintf("hello: clock suspected, counters kept: %v", got.Kept)]++
	}
	if h.Intent == node.Look {
		return
	}
	w.shown = got.Guard
	if got.Standing == node.StandingOK || got.Standing == node.StandingNew {
		w.guard = got.Guard
		return
	}
	if guard, ok := node.ParseGuard(got.Guard); ok && guard.Conf != node.NoConf {
		w.guard = node.Guard{Life: guard.Life, Conf: guard.Conf}.String() // what it would show without quarantine
	}
}

// declare makes the server vote.
func (w *world) declare() {
	w.do("DEL", w.keys.Guard())
	w.model.Delete(w.keys.Guard())
	w.introduce(node.Declare)
}

// watch sends a random claim, and compares what comes of it.
func (w *world) watch() {
	if w.shown == w.guard && w.rnd.IntN(5) > 0 {
		w.introduce(pick(w.rnd, node.Suspect, node.Leapt))
	}
	claim := node.Watch{
		Keys: w.keys, Guard: pick(w.rnd, w.shown, w.shown, w.shown, w.shown, w.guard, "x"), Credit: pick[int64](w.rnd, 0, 500, 999, 1000, 5000, 5000),
		Lift: w.rnd.IntN(4) > 0, Need: 1000, Conf: usualConf.String(), Floor: uint64(w.rnd.IntN(2000)), ByClock: w.rnd.IntN(3) > 0,
	}
	got, err := w.node.Watch(w.t.Context(), claim)
	if err != nil {
		w.t.Fatalf("watch: %v", err)
	}
	if want := w.model.Watch(claim, got.Time); got != want {
		w.t.Fatalf("watch %+v\nserver %+v\n model %+v", claim, got, want)
	}
	w.watches[fmt.Sprintf("known %v, lifted %v", got.Known, got.Lifted)]++
	if claim.Lift && got.Known && !got.Lifted && got.Credit >= claim.Need {
		w.configured["no lift of a fenced node"]++
	}
	if got.Lifted {
		guard, _ := node.ParseGuard(w.shown)
		if guard.Conf == node.NoConf {
			guard.Conf = claim.Conf
		}
		guard.Nonce = ""
		w.guard, w.shown = guard.String(), guard.String()
	}
	if got.Lifted || w.rnd.IntN(2) == 0 {
		w.hello()
	}
	w.askTokens()
}

// configure compares what comes of a random change of configuration.
func (w *world) configure() {
	if w.spoiled() {
		return
	}
	if w.rnd.IntN(3) == 0 {
		w.introduce(node.Suspect)
	}
	conf := usualConf
	conf.Epoch = pick[uint64](w.rnd, 1, 1, 1, 2)
	conf.N = pick(w.rnd, 3, 3, 3, 5)
	shown, _ := w.model.Get(w.keys.Guard(), 0)
	c := node.Configure{
		Keys: w.keys, Conf: conf, Nonce: pick(w.rnd, nonces...), Shown: pick(w.rnd, shown.Text, shown.Text, shown.Text, shown.Text, "x"),
		Fence: w.rnd.IntN(2) == 0, Need: pick[int64](w.rnd, 0, 500, 5000), Floor: uint64(w.rnd.IntN(2000)), ByClock: w.rnd.IntN(3) == 0,
	}
	got, err := w.node.Configure(w.t.Context(), c)
	if err != nil {
		w.t.Fatalf("configure: %v", err)
	}
	if want := w.model.Configure(c, got.Time); got != want {
		w.t.Fatalf("configure %+v\nserver %+v\n model %+v", c, got, want)
	}
	w.configured[fmt.Sprintf("fence %v, done %v, whole %v", c.Fence, got.Done, got.Whole)]++
	w.hello()
	w.askTokens()
}

// spoiled tells that the counters are no hash: an error of each engine's own.
func (w *world) spoiled() bool {
	text, ok := w.model.Get(w.keys.Tokens(), 0)
	return ok && text.Text != ""
}

// askTokens compares the largest number given out.
func (w *world) askTokens() {
	if w.spoiled() {
		return
	}
	ask := node.Tokens{Keys: w.keys, Guard: pick(w.rnd, w.guard, w.guard, w.guard, w.shown, w.shown, "x")}
	tokens, err := w.node.Tokens(w.t.Context(), ask)
	if err != nil {
		w.t.Fatalf("tokens: %v", err)
	}
	if want := w.model.Tokens(ask, tokens.Time); tokens != want {
		w.t.Fatalf("tokens %+v\nserver %+v\n model %+v", ask, tokens, want)
	}
	w.watches[fmt.Sprintf("tokens: voting %v, by clock %v", tokens.Voting, tokens.ByClock)]++
}

func (w *world) runID() string { return w.info("server", "run_id") }

// info is one field of what the server says of itself.
func (w *world) info(section, field string) string {
	for _, line := range strings.Split(w.text("INFO", section), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	w.t.Fatalf("no %s", field)
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
		for _, end := range w.ends() {
			if left := end - now; left < 40 && left >= -2*toleranceMS {
				return false
			}
		}
		return true
	})
}

// ends are the times at which keys end.
func (w *world) ends() []int64 {
	ends := w.setEnds()
	for _, key := range w.leaseKeys() {
		if v, ok := w.model.Get(key, 0); ok && v.Expires != 0 {
			ends = append(ends, v.Expires)
		}
	}
	return ends
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
	call := &node.Call{Keys: w.keys, Guard: w.guard, MaxTTL: maxTTL, Assign: assign, Life: pick[int64](w.rnd, 60, life, life)}
	if w.rnd.IntN(12) == 0 {
		call.Guard = pick(w.rnd, "", "x", w.guard+"x", strings.Replace(w.guard, "|", "0|", 1))
	}
	for range 1 + w.rnd.IntN(8) {
		call.Ops = append(call.Ops, w.op())
	}
	w.settle()
	sent := time.Now()
	got, err := w.node.Call(w.t.Context(), call)
	if err != nil {
		w.t.Fatalf("call: %v\n%+v", err, call)
	}
	// A server that was held up within the call has read its clock at different
	// times.
	if w.expiring(got.Time) || time.Since(sent) > toleranceMS*time.Millisecond {
		w.ambiguous++
		w.adopt()
		w.heard()
		return len(call.Ops)
	}
	w.called, w.before = call, w.model.AppendState(nil, got.Time)
	want := w.model.Apply(call, got.Time)
	if got.Guard != want.Guard {
		w.t.Fatalf("guard: server %q, model %q", got.Guard, want.Guard)
	}
	for i, op := range call.Ops {
		w.answers[coverageKey(op.Kind, got.Answers[i].Code)]++
		if !w.sameAnswer(got.Answers[i], want.Answers[i]) {
			w.t.Fatalf("operation %d of\n%+v\nserver %+v\n model %+v\nstate before %q",
				i, call, got.Answers[i], want.Answers[i], w.before)
		}
		w.noteBranches(op, got.Answers[i])
	}
	w.comparePushes(call)
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

// expiring reports whether a key is so near its end, or near the most that a
// lease may have left, that the server and the model may differ over it.
func (w *world) expiring(now int64) bool {
	for _, end := range w.ends() {
		left := end - now/1000
		over := left - (maxTTL + node.ClockSlack)
		if max(left, -left) <= toleranceMS || max(over, -over) <= toleranceMS {
			return true
		}
	}
	return false
}

func (w *world) op() node.Op {
	op := node.Op{
		Kind: node.Kind(1 + w.rnd.IntN(int(node.Wait))), Name: pick(w.rnd, names...), ID: pick(w.rnd, ids...),
	}
	if w.crowded {
		op.Name = names[0]
		if w.rnd.IntN(2) == 0 {
			op.Kind = pick(w.rnd, node.Wait, node.Wait, node.Release)
		}
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
		op.Proposal, op.Owner, op.Mode = number, pick(w.rnd, owners...), w.mode()
	case node.Wait:
		op.Proposal = number
		w.stand(&op)
	case node.Join:
		op.Token, op.Owner, op.Mode = number, pick(w.rnd, owners...), w.mode()
	case node.Raise:
		op.TTL, op.Token, op.Stored = 0, number, stored
		if w.rnd.IntN(3) == 0 {
			op.Stored = pick(w.rnd, 0, 1, stored+1, maxExact)
		}
	case node.Replace:
		op.Proposal, op.NewID, op.Owner = number, pick(w.rnd, ids...), pick(w.rnd, owners...)
	case node.Break:
		op.TTL, op.Now = 0, w.rnd.IntN(3) == 0
		if w.rnd.IntN(4) == 0 {
			op.ID = node.SharedHolder
		}
	case node.Release:
		op.TTL, op.Proposal = 0, pick(w.rnd, 0, number)
		if w.rnd.IntN(2) == 0 {
			op.ID = w.holder(op.Name)
		}
		if w.rnd.IntN(2) == 0 {
			w.stand(&op)
		}
	case node.Inspect:
		op.TTL = 0
	}
	if op.Kind.Counts() && w.rnd.IntN(8) == 0 {
		op.Seen = pick(w.rnd, 1, number, number+1, maxExact)
	}
	if op.Kind.Votes() && w.rnd.IntN(4) == 0 {
		op.NotAfter = time.Now().Add(pick(w.rnd, -time.Minute, time.Minute)).UnixMicro()
	}
	if op.Kind.Votes() && w.rnd.IntN(60) == 0 {
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
	if v.Text == node.SharedHolder {
		rest, ok = w.model.Field(w.keys.ReaderNumbers(op.Name), op.ID)
	}
	digits, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 1, false
	}
	return n, true
}
