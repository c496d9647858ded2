package nodemodel

import (
	"strings"
	"testing"

	"example.com/redlock/internal/node"
)

// changed is a newer configuration than conf.
var changed = node.Conf{Epoch: 2, Protocol: 1, N: 5, Q: 3, MaxTTL: maxTTL, Members: "n"}

func quarantined(life, nonce string, c node.Conf) string {
	return node.Guard{Life: life, Nonce: nonce, Conf: c.String()}.String()
}

// What a Configure finds, one line each.
func TestConfigure(t *testing.T) {
	other, older := changed, changed
	other.N, older.Epoch = 7, 1
	for _, test := range []struct {
		rule   string
		shown  string // empty for a blank node
		kept   bool   // of its quarantine
		was    string // of its quarantine
		saw    string // by the caller, "=" for what is shown
		fence  bool
		done   bool
		before string // the reply's Was
		whole  bool
	}{
		{"it votes: fenced", guard, false, "", "=", true, true, conf.String(), true},
		{"it votes: configured", guard, false, "", "=", false, true, conf.String(), true},
		{"another process", conf.Guard("r0"), false, "", "=", true, true, conf.String(), false},
		{"in quarantine", inQuarantine, false, "", "=", true, true, conf.String(), false},
		{"in quarantine, its counters kept", inQuarantine, true, "", "=", true, true, conf.String(), true},
		{"the same, of another process", quarantined("r0", nonce, conf), true, "", "=", true, true, conf.String(), false},
		{"blank", "", false, "", "=", true, true, node.NoConf, false},
		{"in quarantine, without configuration", blankQuarantine("r1"), false, "", "=", true, true, node.NoConf, false},
		{"fenced before", quarantined("r1", nonce, changed), true, conf.String(), "=", true, true, conf.String(), true},
		{"fenced before: configured", quarantined("r1", nonce, changed), true, conf.String(), "=", false, true, conf.String(), true},
		{"fenced when blank: configured", quarantined("r1", nonce, changed), false, node.NoConf, "=", false, true, node.NoConf, false},
		{"votes under the new one", changed.Guard("r1"), false, "", "=", true, true, changed.String(), true},
		{"another at the same epoch", other.Guard("r1"), false, "", "=", true, false, other.String(), true},
		{"another at a lower epoch", older.Guard("r1"), false, "", "=", true, true, older.String(), true},
		{"not what the caller saw", guard, false, "", inQuarantine, true, false, conf.String(), true},
		{"no longer blank", guard, false, "", "", true, false, conf.String(), true},
		{"no guard at all", "junk", false, "", "=", true, false, node.NoConf, false},
		{"no configuration", "r1|x", false, "", "=", true, false, "x", true},
	} {
		n := New("r1")
		if test.shown != "" {
			n.Set(keys.Guard(), Value{Text: test.shown})
		}
		if test.kept {
			n.SetField(keys.Quarantine(), keptField, "1")
		}
		n.setIf(keys, wasField, test.was)
		n.SetField(keys.Tokens(), shard, "70")
		n.SetField(keys.Tokens(), node.FloorField, "30")
		saw := strings.Replace(test.saw, "=", test.shown, 1)
		r := n.Configure(node.Configure{Keys: keys, Conf: changed, Shown: saw, Nonce: "88", Fence: test.fence, Need: 5000, Floor: 40, ByClock: true}, now)
		want := node.ConfigureReply{Time: now, Done: test.done, Shown: test.shown, Was: test.before, Whole: test.whole, Highest: 70}
		if r != want {
			t.Errorf("%s: got %+v, want %+v", test.rule, r, want)
		}
		after := test.shown
		if test.done {
			after = quarantined("r1", "88", changed)
		}
		if v, _ := n.Get(keys.Guard(), now); v.Text != after {
			t.Errorf("%s: shows %q, want %q", test.rule, v.Text, after)
		}
		if !test.done {
			continue
		}
		h := n.Hello(node.Hello{Keys: keys, Conf: changed}, now)
		floor, _ := n.Field(keys.Tokens(), node.FloorField)
		if test.fence && (h.Was != test.before || h.Need != 0 || h.Kept != test.whole || floor != "30" || h.ByClock) {
			t.Errorf("%s: %+v, floor %s", test.rule, h, floor)
		}
		if !test.fence && (h.Was != "" || h.Need != 5000 || !h.Kept || floor != "40" || !h.ByClock) {
			t.Errorf("%s: %+v, floor %s", test.rule, h, floor)
		}
	}
}

// A lease of the old configuration may not be kept up; no time that passes makes
// a fenced node vote, and no restart; and one that is configured keeps its
// counters.
func TestFencedUntilConfigured(t *testing.T) {
	n := introduced(t)
	n.Apply(call(node.Op{Kind: node.Acquire, ID: idA, TTL: 300, Proposal: 7}), now)
	configure := func(c node.Configure) {
		t.Helper()
		v, _ := n.Get(keys.Guard(), now)
		c.Keys, c.Conf, c.Shown, c.Nonce = keys, changed, v.Text, nonce
		if r := n.Configure(c, now); !r.Done {
			t.Fatalf("%+v", r)
		}
	}
	lift := func(life string) node.WatchReply {
		return n.Watch(node.Watch{Keys: keys, Guard: quarantined(life, nonce, changed), Credit: 60_000, Lift: true, Need: 1000, Floor: 9, Conf: "x"}, now)
	}
	configure(node.Configure{Fence: true})
	c := call(node.Op{Kind: node.Extend, ID: idA, TTL: 500}, node.Op{Kind: node.Raise, ID: idA, Stored: 7, Token: 50}, node.Op{Kind: node.Release, ID: idA})
	answers := n.Apply(c, now).Answers
	for i, want := range []node.Code{node.NoGuard, node.NoGuard, node.Done} {
		if answers[i].Code != want {
			t.Errorf("operation %d: %v, want %v", i, answers[i].Code, want)
		}
	}
	if r := lift("r1"); !r.Known || r.Lifted {
		t.Errorf("fenced: %+v", r)
	}
	n.Restart("r2", true)
	if h := n.Hello(node.Hello{Keys: keys, Conf: changed, Nonce: nonce}, now); h.Was != conf.String() || h.Kept || !h.Changed {
		t.Errorf("restarted: %+v", h)
	}
	if r := lift("r2"); !r.Known || r.Lifted {
		t.Errorf("fenced and restarted: %+v", r)
	}
	configure(node.Configure{Need: 5000, Floor: 80})
	if r := lift("r2"); !r.Lifted {
		t.Errorf("configured: %+v", r)
	}
	c = call(node.Op{Kind: node.Acquire, ID: idB, TTL: 300, Proposal: 5})
	c.Guard = changed.Guard("r2")
	if a := n.Apply(c, now).Answers[0]; a.Token != 81 {
		t.Errorf("first number above the floor: %+v", a)
	}
}

// Clients of two versions share a node, whichever of them declared it.
func TestProtocolsSideBySide(t *testing.T) {
	next := conf
	next.Protocol++
	for _, declared := range []node.Conf{conf, next} {
		n := New("r1")
		n.Hello(node.Hello{Keys: keys, Conf: declared, Intent: node.Declare}, now)
		for _, client := range []node.Conf{conf, next} {
			h := n.Hello(node.Hello{Keys: keys, Conf: client, Nonce: nonce}, now)
			want := node.StandingOK
			if client.Protocol < declared.Protocol {
				want = node.StandingMismatch // it cannot know what it would be told
			}
			if h.Standing != want {
				t.Errorf("declared with %d, greeted with %d: %+v", declared.Protocol, client.Protocol, h)
			}
			c := call(node.Op{Kind: node.Acquire, ID: idA, TTL: 300})
			c.Guard = h.Guard // the node's own words
			if a := n.Apply(c, now).Answers[0]; a.Code != node.Granted {
				t.Errorf("declared with %d, client of %d: %v", declared.Protocol, client.Protocol, a.Code)
			}
		}
	}
}
