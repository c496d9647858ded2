package nodemodel

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"example.com/redlock/internal/node"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	idC = "cccccccccccccccccccccccccccccccc"

	now    = int64(1785000000_000_000) // µs
	nowMS  = now / 1000
	maxTTL = 1000 // ms
	limit  = uint64(now + node.ClockSlack*1000)
)

var (
	keys     = node.Keyspace{Namespace: "redlock"}
	conf     = node.Conf{Epoch: 1, Protocol: 1, N: 3, Q: 2, MaxTTL: maxTTL, Members: "m"}
	guard    = conf.Guard("r1")
	leaseKey = keys.Lease("x")
	shard    = format(uint64(node.Shard("x")))
)

func call(ops ...node.Op) *node.Call {
	for i := range ops {
		if ops[i].Name == "" {
			ops[i].Name = "x"
		}
	}
	return &node.Call{Keys: keys, Guard: guard, MaxTTL: maxTTL, Ops: ops}
}

// state is a node's data in a form to compare: the lease of x with its
// remaining time, and the counter of its shard.
func state(n *Node) string {
	v, ok := n.Get(leaseKey, now)
	text := "-"
	if ok {
		text = fmt.Sprintf("%s %d", v.Text, v.left(now))
	}
	counter, _ := n.Field(keys.Tokens(), shard)
	return strings.NewReplacer(idA, "A", idB, "B", idC, "C", fmt.Sprint(limit), "limit").Replace(text + " F" + counter)
}

// The rules, one line each: what is stored for x, the operation, the answer,
// what is stored then. A, B and C stand for attempt ids.
func TestRules(t *testing.T) {
	acquire := node.Op{Kind: node.Acquire, ID: idA, TTL: 300, Proposal: 50}
	with := func(op node.Op, change func(*node.Op)) node.Op { change(&op); return op }
	extend := node.Op{Kind: node.Extend, ID: idA, TTL: 300}
	join := node.Op{Kind: node.Join, ID: idA, TTL: 300, Token: 50, Owner: "o p"}
	raise := node.Op{Kind: node.Raise, ID: idA, Stored: 7, Token: 50}
	replace := node.Op{Kind: node.Replace, ID: idA, NewID: idC, TTL: 300, Proposal: 50}
	release := node.Op{Kind: node.Release, ID: idA}
	breaks := node.Op{Kind: node.Break, ID: idA}
	breakNow := node.Op{Kind: node.Break, ID: idA, Now: true}
	inspect := node.Op{Kind: node.Inspect}

	for _, test := range []struct {
		rule   string
		stored string // of x: value and remaining time, -1 for no end; empty for none
		f      string // the shard's counter
		op     node.Op
		answer string
		after  string
	}{
		{"blank", "", "", acquire, "granted 50", "A:50 300 F50"},
		{"the proposal was given out", "", "70", acquire, "granted 71", "A:71 300 F71"},
		{"a proposal ahead of the clock is clamped", "", "", with(acquire, func(op *node.Op) { op.Proposal = 1 << 52 }), "granted limit", "A:limit 300 Flimit"},
		{"the counter may lead the clock", "", "8999999999999999", acquire, "granted 9000000000000000", "A:9000000000000000 300 F9000000000000000"},
		{"a counter that is used up", "", "9007199254740991", acquire, "bad", "- F9007199254740991"},
		{"owner label", "", "", with(acquire, func(op *node.Op) { op.Owner = "o p" }), "granted 50", "A:50 o p 300 F50"},
		{"own lease: its number, its time raised", "A:7 100", "7", acquire, "granted 7", "A:7 300 F50"},
		{"own lease: never shortened", "A:7 500", "7", acquire, "granted 7", "A:7 500 F50"},
		{"held", "B:7 o p 100", "7", acquire, "held 50 100 B o p", "B:7 o p 100 F50"},
		{"broken, even by its owner", "~broken A:7 o 100", "7", acquire, "broken 50 100 A o", "~broken A:7 o 100 F50"},
		{"foreign: not touched", "else -1", "", acquire, "foreign 50 -1", "else -1 F50"},
		{"more time than a lease has is cut", "B:7 1251", "", acquire, "held 50 1000 B", "B:7 1000 F50"},
		{"a little more is not", "B:7 1250", "", acquire, "held 50 1250 B", "B:7 1250 F50"},
		{"no end is cut", "~broken B:7 -1", "", acquire, "broken 50 1000 B", "~broken B:7 1000 F50"},
		{"stale", "", "", with(acquire, func(op *node.Op) { op.NotAfter = now - 1 }), "stale", "- F"},
		{"just in time", "", "", with(acquire, func(op *node.Op) { op.NotAfter = now }), "granted 50", "A:50 300 F50"},
		{"no ttl", "", "", with(acquire, func(op *node.Op) { op.TTL = 0 }), "bad", "- F"},
		{"a number too large", "", "", with(acquire, func(op *node.Op) { op.Proposal = node.MaxExact }), "bad", "- F"},
		{"a counter behind what was seen", "", "70", with(acquire, func(op *node.Op) { op.Seen = 71 }), "went back", "- F70"},
		{"a counter as it was seen", "", "70", with(acquire, func(op *node.Op) { op.Seen = 70 }), "granted 71", "A:71 300 F71"},
		{"a raise of a counter behind what was seen", "A:7 100", "7", with(raise, func(op *node.Op) { op.Seen = 9 }), "went back", "A:7 100 F7"},
		{"a counter that is none", "", "0x10", acquire, "bad", "- F0x10"},

		{"extend", "A:7 o 100", "", extend, "done", "A:7 o 300 F"},
		{"extend never shortens", "A:7 500", "", extend, "done", "A:7 500 F"},
		{"extend does not create", "", "", extend, "absent", "- F"},
		{"extend of a broken lease", "~broken A:7 100", "9", extend, "broken 7 100 A", "~broken A:7 100 F9"},
		{"extend of another's", "B:7 100", "9", extend, "held 7 100 B", "B:7 100 F9"},

		{"join", "", "7", join, "done", "A:50 o p 300 F50"},
		{"join does not lower the counter", "", "70", join, "done", "A:50 o p 300 F70"},
		{"join of the own lease", "A:7 100", "", join, "done", "A:7 300 F50"},
		{"join where another is", "B:7 100", "", join, "held 50 100 B", "B:7 100 F50"},

		{"raise", "A:7 100", "7", raise, "done", "A:7 100 F50"},
		{"raise of another grant", "A:8 100", "8", raise, "held 50 100 A", "A:8 100 F50"},
		{"raise of another's", "B:7 100", "7", raise, "held 50 100 B", "B:7 100 F50"},
		{"raise of none", "", "", raise, "absent", "- F50"},

		{"replace", "A:7 o 100", "7", replace, "granted 50", "C:50 300 F50"},
		{"replace keeps the time", "A:7 500", "7", replace, "granted 50", "C:50 500 F50"},
		{"replace again", "C:50 100", "50", replace, "granted 50", "C:50 300 F51"},
		{"replace of another's", "B:7 100", "7", replace, "held 50 100 B", "B:7 100 F50"},
		{"replace of a broken lease", "~broken A:7 100", "", replace, "broken 50 100 A", "~broken A:7 100 F50"},

		{"release", "A:7 o 100", "", release, "done", "- F"},
		{"release of a broken lease", "~broken A:7 100", "", release, "done", "- F"},
		{"release of none", "", "", release, "absent", "- F"},
		{"release of another's cuts nothing", "B:7 -1", "", release, "held 7 -1 B", "B:7 -1 F"},

		{"break", "A:7 o 100", "", breaks, "done", "~broken A:7 o 100 F"},
		{"break of a lease without end", "A:7 -1", "", breaks, "done", "~broken A:7 1000 F"},
		{"break again", "~broken A:7 100", "", breaks, "done", "~broken A:7 100 F"},
		{"break now", "~broken A:7 100", "", breakNow, "done", "- F"},
		{"a late break", "B:7 100", "", breakNow, "held 7 100 B", "B:7 100 F"},
		{"a late break of a broken one", "~broken B:7 100", "", breaks, "broken 7 100 B", "~broken B:7 100 F"},
		{"break of a foreign value", "else 100", "", breakNow, "foreign 0 100", "else 100 F"},
		{"break of none", "", "", breaks, "absent", "- F"},

		{"inspect", "A:7 o p 2000", "9", inspect, "held 7 2000 A o p", "A:7 o p 2000 F9"},
		{"inspect of none", "", "", inspect, "absent", "- F"},
	} {
		n := introduced(t)
		if test.stored != "" {
			i := strings.LastIndexByte(test.stored, ' ')
			var left int64
			fmt.Sscan(test.stored[i+1:], &left)
			v := Value{Text: expand(test.stored[:i]), Expires: nowMS + left}
			if left < 0 {
				v.Expires = 0
			}
			n.Set(leaseKey, v)
		}
		if test.f != "" {
			n.SetField(keys.Tokens(), shard, test.f)
		}
		a := n.Apply(call(test.op), now).Answers[0]
		if got := describe(a); got != test.answer {
			t.Errorf("%s: answered %q, want %q", test.rule, got, test.answer)
		}
		if got := state(n); got != test.after {
			t.Errorf("%s: left %q, want %q", test.rule, got, test.after)
		}
	}
}

func introduced(t *testing.T) *Node {
	t.Helper()
	n := New("r1")
	if h := n.Hello(node.Hello{Keys: keys, Conf: conf, Intent: node.Declare}, now); h.Standing != node.StandingNew || h.Guard != guard {
		t.Fatalf("%+v", h)
	}
	return n
}

func expand(text string) string {
	return strings.NewReplacer("A:", idA+":", "B:", idB+":", "C:", idC+":").Replace(text)
}

func describe(a node.Answer) string {
	text := a.Code.String()
	switch a.Code {
	case node.Granted:
		text += fmt.Sprintf(" %d", a.Token)
	case node.Failed:
		return "bad"
	case node.Held, node.Broken:
		text += strings.TrimSuffix(fmt.Sprintf(" %d %d %s %s", a.Token, a.Remaining, a.Holder, a.Owner), " ")
	case node.Foreign:
		text += fmt.Sprintf(" %d %d", a.Token, a.Remaining)
	}
	return strings.NewReplacer(idA, "A", idB, "B", idC, "C", fmt.Sprint(limit), "limit").Replace(text)
}

func TestValuesThatAreOurs(t *testing.T) {
	for text, want := range map[string]bool{
		idA + ":7": true, idA + ":7 o": true, idA + ":7 ": true, idA + ":007": true, "~broken " + idA + ":7": true,
		"": false, idA: false, idA + ":": false, idA + ":7x": false, idA + ":-7": false, idA[1:] + ":7": false, idA + "a:7": false,
		strings.ToUpper(idA) + ":7": false, "~broken": false, "~broken ~broken " + idA + ":7": false, "~shared": false,
		idA + ":9007199254740991": true, idA + ":9007199254740992": false, idA + ":00000000000000007": false,
	} {
		if _, ours := parseLease(text); ours != want {
			t.Errorf("%q: ours %v, want %v", text, ours, want)
		}
	}
}

func TestNoGuardNoGrant(t *testing.T) {
	kinds := []node.Kind{node.Acquire, node.Extend, node.Join, node.Raise, node.Replace, node.Release, node.Break, node.Inspect}
	for name, spoil := range map[string]func(*Node, *node.Call){
		"blank":           func(n *Node, _ *node.Call) { n.Flush() },
		"another process": func(n *Node, _ *node.Call) { n.Restart("r2", true) },
		"a longer run id": func(n *Node, _ *node.Call) { n.Restart("r11", true) },
		"another conf":    func(_ *Node, c *node.Call) { c.Guard += "x" },
		"nothing wanted":  func(n *Node, c *node.Call) { n.Flush(); c.Guard = "" },
		"no process": func(n *Node, c *node.Call) {
			n.Restart("", true)
			n.Set(keys.Guard(), Value{Text: "|x"})
			c.Guard = "|x"
		},
	} {
		for _, kind := range kinds {
			n := introduced(t)
			n.Set(leaseKey, Value{Text: idA + ":7", Expires: nowMS + 100})
			c := call(node.Op{Kind: kind, ID: idA, NewID: idC, TTL: 300, Stored: 7, Token: 50})
			spoil(n, c)
			before := n.AppendState(nil, now)
			r := n.Apply(c, now)
			if (r.Answers[0].Code == node.NoGuard) != kind.Guarded() {
				t.Errorf("%s: kind %d: %v", name, kind, r.Answers[0].Code)
			}
			if kind.Guarded() && !bytes.Equal(before, n.AppendState(nil, now)) {
				t.Errorf("%s: kind %d: the state changed", name, kind)
			}
		}
	}
}

// Tokens of one call differ, and what failed does not lower them.
func TestCountersOfACall(t *testing.T) {
	n := introduced(t)
	n.SetField(keys.Tokens(), node.FloorField, "100")
	a := n.Apply(call(
		node.Op{Kind: node.Acquire, ID: idA, TTL: 300},
		node.Op{Kind: node.Release, ID: idA},
		node.Op{Kind: node.Acquire, ID: idB, TTL: 300},
		node.Op{Kind: node.Raise, ID: idB, Stored: 102, Token: 200},
		node.Op{Kind: node.Acquire, ID: idC, TTL: 300},
	), now).Answers
	if a[0].Token != 101 || a[2].Token != 102 || a[3].Code != node.Done || a[4].Code != node.Held || a[4].Token != 201 {
		t.Errorf("%+v", a)
	}
	if f, _ := n.Field(keys.Tokens(), shard); f != "201" {
		t.Errorf("counter %s", f)
	}
}

func TestWrongTypes(t *testing.T) {
	n := introduced(t)
	n.SetField(leaseKey, "a", "b")
	for kind := node.Acquire; kind <= node.Inspect; kind++ {
		a := n.Apply(call(node.Op{Kind: kind, ID: idA, NewID: idC, TTL: 300, Stored: 7}), now).Answers[0]
		if a.Code != node.WrongType {
			t.Errorf("kind %d: %+v", kind, a)
		}
	}
	n.Delete(leaseKey)
	n.Set(keys.Tokens(), Value{Text: "x"})
	a := n.Apply(call(node.Op{Kind: node.Acquire, ID: idA, TTL: 300}, node.Op{Kind: node.Inspect}), now).Answers
	if a[0].Code != node.Failed || a[1].Code != node.Absent {
		t.Errorf("%+v", a)
	}
}

func TestExpiry(t *testing.T) {
	n := introduced(t)
	n.Set(leaseKey, Value{Text: idA + ":7", Expires: nowMS})
	if _, ok := n.Get(leaseKey, now+999); !ok {
		t.Error("gone within its last millisecond")
	}
	if _, ok := n.Get(leaseKey, now+1000); ok {
		t.Error("there after its last millisecond")
	}
	if _, ok := n.Get(leaseKey, now); ok {
		t.Error("came back with the clock")
	}
}

func TestCloneAndState(t *testing.T) {
	n := introduced(t)
	n.Apply(call(node.Op{Kind: node.Acquire, ID: idA, TTL: 300}), now)
	c := n.Clone()
	if !bytes.Equal(n.AppendState(nil, now), c.AppendState(nil, now)) {
		t.Error("a clone differs")
	}
	c.Apply(call(node.Op{Kind: node.Acquire, ID: idB, TTL: 300, Name: "y"}), now)
	c.Restart("r2", true)
	if bytes.Equal(n.AppendState(nil, now), c.AppendState(nil, now)) {
		t.Error("different nodes look the same")
	}
	if _, ok := n.Get(keys.Lease("y"), now); ok {
		t.Error("a clone shares data")
	}
	// Only remaining times count, and what has expired does not.
	late := introduced(t)
	late.Apply(call(node.Op{Kind: node.Acquire, ID: idA, TTL: 300}), now+5000)
	if !bytes.Equal(n.AppendState(nil, now), late.AppendState(nil, now+5000)) {
		t.Error("the absolute time is part of the state")
	}
	before := n.AppendState(nil, now+1e6)
	n.Sweep(now + 1e6)
	if !bytes.Equal(before, n.AppendState(nil, now+1e6)) {
		t.Error("an expired key is part of the state")
	}
}

// What stays is on a page, also if the key at which the next one was to begin
// goes.
func TestScanWhileKeysComeAndGo(t *testing.T) {
	n := introduced(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		n.Set(keys.Lease(name), Value{Text: idA + ":1"})
	}
	n.Set(keys.Lease("b2"), Value{Text: idA + ":1", Expires: now / 1000})
	scan := node.Scan{Keys: keys, Pattern: "*", Count: 2}
	var names []string
	for pages := 0; ; pages++ {
		r := n.Scan(scan, now+1e6)
		names = append(names, r.Names...)
		n.Delete(r.Next)
		n.Set(keys.Lease("a0"), Value{Text: "x"})
		if scan.Cursor = r.Next; scan.Cursor == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "a b d" && got != "a b c e" {
		t.Errorf("found %s", got)
	}
	if r := n.Scan(node.Scan{Keys: keys, Pattern: "[", Count: 2}, now); len(r.Names) > 0 {
		t.Errorf("a pattern that is none matches %q", r.Names)
	}
}
