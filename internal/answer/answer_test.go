package answer

import (
	"testing"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

const ours, theirs = "ours", "theirs"

// codes are all answers there are.
var codes = []node.Code{
	node.Granted, node.Done, node.Held, node.Broken, node.Foreign, node.WrongType, node.Absent, node.Stale,
	node.NoGuard, node.WentBack, node.Failed,
}

func TestVote(t *testing.T) {
	want := map[node.Code]core.EventKind{
		node.Granted: core.Granted,
		node.NoGuard: core.Unsent, node.Stale: core.Unsent, node.Failed: core.Unsent,
	}
	for _, code := range codes {
		kind := want[code]
		if kind == 0 {
			kind = core.Refused
		}
		ev := Vote(node.Answer{Code: code, Token: 7}, 2, 5)
		if ev.Kind != kind || ev.Node != 2 {
			t.Errorf("%v is %+v", code, ev)
		}
		if code == node.Granted && (ev.Token != 7 || ev.Sent != 5) {
			t.Errorf("a grant of 7, asked for at 5, is %+v", ev)
		}
	}
	if sent, not := NoVote(2, true), NoVote(2, false); sent.Kind != core.Silent || not.Kind != core.Unsent {
		t.Errorf("no answer is %+v; %+v if nothing was sent", sent, not)
	}
}

func TestRaise(t *testing.T) {
	if done, not := Raise(2, true), Raise(2, false); done.Kind != core.Raised || not.Kind != core.RaiseFailed {
		t.Errorf("a raise is %+v; %+v if not done", done, not)
	}
}

func TestRenewal(t *testing.T) {
	extend := map[node.Code]core.RenewalEventKind{
		node.Done: core.Extended, node.Absent: core.Missing,
		node.Failed: core.Unanswered, node.NoGuard: core.Unanswered,
	}
	for _, code := range codes {
		kind := extend[code]
		if kind == 0 {
			kind = core.Taken
		}
		ans := node.Answer{Code: code, Holder: theirs}
		if ev := Renewal(node.Op{Kind: node.Extend, ID: ours}, ans, 2, 5); ev != (core.RenewalEvent{Kind: kind, Node: 2, Sent: 5}) {
			t.Errorf("%v to an extension is %+v", code, ev)
		}
		kind = core.NotJoined
		if code == node.Done {
			kind = core.Joined
		}
		if ev := Renewal(node.Op{Kind: node.Join, ID: ours}, ans, 2, 5); ev != (core.RenewalEvent{Kind: kind, Node: 2, Sent: 5}) {
			t.Errorf("%v to a join is %+v", code, ev)
		}
	}
	broken := node.Answer{Code: node.Broken, Holder: ours}
	if ev := Renewal(node.Op{Kind: node.Extend, ID: ours}, broken, 2, 5); ev.Kind != core.Refusing {
		t.Errorf("that our lease was broken is %+v", ev)
	}
	if ev := NoRenewal(node.Extend, 2); ev.Kind != core.Unanswered {
		t.Errorf("no answer to an extension is %+v", ev)
	}
	if ev := NoRenewal(node.Join, 2); ev.Kind != core.NotJoined {
		t.Errorf("no answer to a join is %+v", ev)
	}
}
