package nodemodel

import (
	"testing"

	"example.com/redlock/internal/node"
)

const nonce = "5f"

var inQuarantine = node.Guard{Life: "r1", Nonce: nonce, Conf: conf.String()}.String()

func blankQuarantine(life string) string {
	return node.Guard{Life: life, Nonce: nonce, Conf: node.NoConf}.String()
}

// What a hello finds and leaves, one line each.
func TestHello(t *testing.T) {
	other, older, next := conf, conf, conf
	other.N = 5
	older.Protocol--
	next.Epoch = 9
	for _, test := range []struct {
		rule     string
		shown    string // empty for a blank node
		intent   node.Intent
		suspect  string
		standing node.Standing
		after    string // empty for a blank node, "=" for no change
	}{
		{"blank", "", node.Greet, "", node.StandingQuarantined, blankQuarantine("r1")},
		{"blank, a look", "", node.Look, "", node.StandingNew, ""},
		{"blank, declared", "", node.Declare, "", node.StandingNew, guard},
		{"known", guard, node.Greet, "", node.StandingOK, "="},
		{"known, declared again", guard, node.Declare, "", node.StandingOK, "="},
		{"the epoch is the node's to say", next.Guard("r1"), node.Greet, "", node.StandingOK, "="},
		{"an older protocol", older.Guard("r1"), node.Greet, "", node.StandingOK, "="},
		{"another configuration", other.Guard("r1"), node.Greet, "", node.StandingMismatch, "="},
		{"another configuration, declared", other.Guard("r1"), node.Declare, "", node.StandingMismatch, "="},
		{"another process", conf.Guard("r0"), node.Greet, "", node.StandingQuarantined, inQuarantine},
		{"another process, a look", conf.Guard("r0"), node.Look, "", node.StandingQuarantined, "="},
		{"another process is not declared", conf.Guard("r0"), node.Declare, "", node.StandingQuarantined, inQuarantine},
		{"another process and configuration", other.Guard("r0"), node.Greet, "", node.StandingMismatch,
			node.Guard{Life: "r1", Nonce: nonce, Conf: other.String()}.String()},
		{"the quarantine of another process", node.Guard{Life: "r0", Nonce: "77", Conf: conf.String()}.String(), node.Greet, "",
			node.StandingQuarantined, inQuarantine},
		{"in quarantine: it keeps its name", node.Guard{Life: "r1", Nonce: "77", Conf: conf.String()}.String(), node.Greet, "",
			node.StandingQuarantined, "="},
		{"in quarantine, without configuration", node.Guard{Life: "r1", Nonce: "77", Conf: node.NoConf}.String(), node.Greet, "",
			node.StandingQuarantined, "="},
		{"in quarantine, without configuration, declared", node.Guard{Life: "r1", Nonce: "77", Conf: node.NoConf}.String(), node.Declare, "",
			node.StandingNew, guard},
		{"in quarantine with another configuration", node.Guard{Life: "r1", Nonce: "77", Conf: other.String()}.String(), node.Greet, "",
			node.StandingMismatch, "="},
		{"suspected", guard, node.Suspect, guard, node.StandingQuarantined, inQuarantine},
		{"suspected too late", guard, node.Suspect, conf.Guard("r0"), node.StandingOK, "="},
		{"junk", "junk", node.Greet, "", node.StandingMismatch, "="},
		{"junk, declared", "junk", node.Declare, "", node.StandingMismatch, "="},
	} {
		n := New("r1")
		if test.shown != "" {
			n.Set(keys.Guard(), Value{Text: test.shown})
		}
		h := n.Hello(node.Hello{Keys: keys, Conf: conf, Intent: test.intent, Nonce: nonce, Suspect: test.suspect}, now)
		v, _ := n.Get(keys.Guard(), now)
		want := test.after
		if want == "=" {
			want = test.shown
		}
		if h.Standing != test.standing || v.Text != want {
			t.Errorf("%s: %s, then %q, want %s, %q", test.rule, h.Standing, v.Text, test.standing, want)
		}
		if test.intent != node.Look && (h.Guard != want || h.Changed != (want != test.shown) || h.Changed && h.Previous != test.shown) {
			t.Errorf("%s: %+v", test.rule, h)
		}
	}
}

// A promoted replica may be behind itself: the same process is another life.
func TestPromotionIsANewLife(t *testing.T) {
	n := introduced(t)
	n.Promote("0000000000000000000000000000000000000000")
	if a := n.Apply(call(node.Op{Kind: node.Acquire, ID: idA, TTL: 300}), now).Answers[0]; a.Code != node.Granted {
		t.Errorf("never promoted: %v", a.Code)
	}
	n.Promote("abcdefabcdefabcdefabcdef")
	if a := n.Apply(call(node.Op{Kind: node.Acquire, ID: idB, TTL: 300}), now).Answers[0]; a.Code != node.NoGuard {
		t.Errorf("promoted: %v", a.Code)
	}
	h := n.Hello(node.Hello{Keys: keys, Conf: conf, Nonce: nonce}, now)
	if h.Standing != node.StandingQuarantined || h.Life != "r1.abcdefabcdef" {
		t.Errorf("%+v", h)
	}
}

// In quarantine a lease that the node still has is kept up, and none is given.
func TestQuarantineKeepsUpLeases(t *testing.T) {
	for _, blank := range []bool{false, true} {
		n := introduced(t)
		n.Apply(call(node.Op{Kind: node.Acquire, ID: idA, TTL: 300, Proposal: 7}), now)
		n.Restart("r2", true)
		if blank {
			n.Delete(keys.Guard())
		}
		n.Hello(node.Hello{Keys: keys, Conf: conf, Nonce: nonce}, now)
		c := call(
			node.Op{Kind: node.Extend, ID: idA, TTL: 500}, node.Op{Kind: node.Raise, ID: idA, Stored: 7, Token: 50},
			node.Op{Kind: node.Acquire, ID: idB, TTL: 300, Name: "y"}, node.Op{Kind: node.Join, ID: idB, TTL: 300, Token: 9, Name: "y"},
			node.Op{Kind: node.Replace, ID: idA, NewID: idC, TTL: 300}, node.Op{Kind: node.Inspect}, node.Op{Kind: node.Release, ID: idA},
		)
		c.Guard = conf.Guard("r2")
		want := []node.Code{node.Done, node.Done, node.NoGuard, node.NoGuard, node.NoGuard, node.Held, node.Done}
		if blank { // it may have had another configuration
			want[0], want[1] = node.NoGuard, node.NoGuard
		}
		for i, a := range n.Apply(c, now).Answers {
			if a.Code != want[i] {
				t.Errorf("blank %v, operation %d: %v, want %v", blank, i, a.Code, want[i])
			}
			if k := c.Ops[i].Kind; k.InQuarantine(blank) != (a.Code != node.NoGuard) {
				t.Errorf("blank %v, kind %d: %v, and clients expect otherwise", blank, k, a.Code)
			}
		}
	}
}

func TestCreditAndLift(t *testing.T) {
	n := introduced(t)
	n.Apply(call(node.Op{Kind: node.Acquire, ID: idA, TTL: 300, Proposal: 7}), now)
	n.Restart("r2", true)
	shown := n.Hello(node.Hello{Keys: keys, Conf: conf, Nonce: nonce}, now).Guard
	watch := func(change func(*node.Watch)) node.WatchReply {
		w := node.Watch{Keys: keys, Guard: shown, Need: 1000, Conf: conf.String(), Floor: 99, ByClock: true}
		change(&w)
		return n.Watch(w, now)
	}
	if r := watch(func(w *node.Watch) { w.Credit = 400 }); !r.Known || r.Credit != 400 {
		t.Errorf("first claim: %+v", r)
	}
	if r := watch(func(w *node.Watch) { w.Credit = 300 }); r.Credit != 400 {
		t.Errorf("a smaller claim: %+v", r)
	}
	if r := watch(func(w *node.Watch) { w.Credit, w.Guard = 5000, inQuarantine }); r.Known || r.Credit != 0 {
		t.Errorf("of another process: %+v", r)
	}
	if r := watch(func(w *node.Watch) { w.Credit, w.Lift = 999, true }); r.Lifted {
		t.Error("lifted too early")
	}
	if h := n.Hello(node.Hello{Keys: keys, Conf: conf, Nonce: "77"}, now); h.Credit != 999 || h.Changed {
		t.Errorf("%+v", h)
	}
	if r := watch(func(w *node.Watch) { w.Credit, w.Lift = 1000, true }); !r.Lifted {
		t.Fatalf("not lifted: %+v", r)
	}
	h := n.Hello(node.Hello{Keys: keys, Conf: conf}, now)
	if h.Standing != node.StandingOK || !h.ByClock {
		t.Errorf("%+v", h)
	}
	c := call(node.Op{Kind: node.Acquire, ID: idB, TTL: 300, Name: "y", Proposal: 5})
	c.Guard = conf.Guard("r2")
	if a := n.Apply(c, now).Answers[0]; a.Token != 100 || !a.ByClock {
		t.Errorf("first number above the floor: %+v", a)
	}
	if r := n.Tokens(node.Tokens{Keys: keys, Guard: c.Guard}, now); !r.Voting || r.Highest != 100 || !r.ByClock {
		t.Errorf("%+v", r)
	}
	if r := n.Tokens(node.Tokens{Keys: keys, Guard: guard}, now); r.Voting || r.Highest != 100 {
		t.Errorf("%+v", r)
	}
}
