package quorum

import (
	"strings"
	"testing"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// What real servers do not do to order; the rest is tested on them, in
// testkit/integration.

// at is a look that took from sent to received, at which the node's clock read
// clock.
func at(sent, received, clock time.Duration) look {
	return look{
		sent: core.Instant(sent), received: core.Instant(received),
		reply: node.HelloReply{Time: clock.Microseconds(), Role: "master"},
	}
}

func TestClockIsJudgedByWhatIsSure(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		first, last look
		says        string
	}{
		{at(0, ms, 5000*ms), at(1000*ms, 1001*ms, 6000*ms), ""},
		{at(0, ms, 5000*ms), at(1000*ms, 1001*ms, 5000*ms), "stands still"},
		{at(0, ms, 5000*ms), at(1000*ms, 1001*ms, 4999*ms), "went back"},
		{at(0, ms, 5000*ms), at(1000*ms, 1001*ms, 6020*ms), "fast, by 1.9 %"},
		{at(0, ms, 5000*ms), at(1000*ms, 1001*ms, 5980*ms), "slow, by 1.9 %"},
		// The answers were on their way so long that it may be their doing.
		{at(0, 50*ms, 5000*ms), at(1000*ms, 1001*ms, 5980*ms), ""},
		{at(0, ms, 5000*ms), at(1000*ms, 1050*ms, 6020*ms), ""},
	} {
		v := checkClock(nil, &nodeFacts{first: test.first, last: test.last})
		if (v.Severity == backend.SeverityOK) != (test.says == "") || !strings.Contains(v.Text, test.says) {
			t.Errorf("%+v, want %q", v, test.says)
		}
	}
}

func TestTimeIsComparedWithTheMedian(t *testing.T) {
	const ms = time.Millisecond
	f := &facts{}
	for _, clock := range []time.Duration{1000 * ms, 1100 * ms, 5000 * ms, 1300 * ms} {
		l := at(0, 10*ms, clock)
		f.nodes = append(f.nodes, &nodeFacts{first: l, last: l})
	}
	if m, ok := f.medianOffset(); !ok || m != 1195*ms {
		t.Errorf("the median of four is %v", m)
	}
	for i, want := range []backend.Severity{backend.SeverityOK, backend.SeverityOK, backend.SeverityHint, backend.SeverityOK} {
		if v := checkTime(f, f.nodes[i]); v.Severity != want {
			t.Errorf("node %d: %+v, want %s", i, v, want)
		}
	}
	// The nearer of two looks is the surer one.
	n := f.nodes[0]
	n.last = at(1000*ms, 2000*ms, 2900*ms)
	if v := checkTime(f, n); v.Severity != backend.SeverityOK || n.took() != 10*ms {
		t.Errorf("%+v", v)
	}
}

func TestQuarantineSaysWhyAndWhatToDo(t *testing.T) {
	conf := node.Conf{Protocol: node.ProtocolVersion, N: 1, Q: 1, MaxTTL: 30_000}
	guard := node.Guard{Life: "r", Nonce: "n", Conf: conf.String()}.String()
	for _, test := range []struct {
		changed, blank, fenced, counterOnly bool
		err                                 error
		left                                time.Duration
		text, remedy                        string
	}{
		{left: 1500 * time.Millisecond, text: "restarted, or was given other data; votes in 1.5s", remedy: waitOut},
		{changed: true, left: time.Second, text: "restarted, or was given other data; votes in 1s after the first client has met it", remedy: waitOut},
		{blank: true, left: time.Second, text: "blank: if it is new, declare it with init; votes in 1s", remedy: declare},
		{counterOnly: true, text: "votes in 0s", remedy: "counter-only is set"},
		{fenced: true, err: errFenced, text: "run init --reconfigure again", remedy: "run redlock init --reconfigure again"},
	} {
		if test.err == nil {
			test.err = &quarantinedError{why: whyRestarted, left: test.left}
			if test.blank {
				test.err = &quarantinedError{why: whyNew, left: test.left}
			}
		}
		f := &facts{cfg: &Config{CounterOnly: test.counterOnly}}
		n := &nodeFacts{blank: test.blank, fenced: test.fenced, quarantined: test.err, left: test.left}
		n.last.reply = node.HelloReply{Role: "master", Guard: guard, Standing: node.StandingQuarantined, Changed: test.changed}
		f.nodes = []*nodeFacts{n}
		v := checkQuarantine(f, n)
		if v.Severity != backend.SeverityFailure || !strings.HasSuffix(v.Text, test.text) || !strings.Contains(v.Remedy, test.remedy) {
			t.Errorf("%+v: got %+v", test, v)
		}
	}
}
