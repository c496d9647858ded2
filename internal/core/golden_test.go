package core

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files with what the code does now")

// TestGolden runs the command files in testdata. A file is a story: blocks of
// one command, a line of dashes, and what the core made of it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(raw))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(raw) {
				t.Errorf("differs; got:\n%s", got)
			}
		})
	}
}

// replay carries out the commands of a file and returns the file with the
// results that came out.
func replay(t *testing.T, file string) string {
	var out strings.Builder
	var w world
	for block := range strings.SplitSeq(strings.TrimRight(file, "\n"), "\n\n") {
		var command string
		for line := range strings.SplitSeq(block, "\n") {
			if line == "----" {
				break
			}
			fmt.Fprintln(&out, line)
			if !strings.HasPrefix(line, "#") {
				command = line
			}
		}
		if command != "" {
			fmt.Fprintf(&out, "----\n%s\n", w.do(t, command))
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// world is what the commands of a file act on.
type world struct {
	cfg     RoundConfig
	round   *Round
	holding Holding
	renewal *Renewal
	history []timedEvent
}

type timedEvent struct {
	at Instant
	ev Event
}

// args are the words of a command: bare ones in order, and key=value.
type args struct {
	t     *testing.T
	words []string
	named map[string]string
}

func parse(t *testing.T, command string) args {
	a := args{t: t, named: map[string]string{}}
	for _, w := range strings.Fields(command) {
		if k, v, ok := strings.Cut(w, "="); ok {
			a.named[k] = v
		} else {
			a.words = append(a.words, w)
		}
	}
	return a
}

func (a args) num(key string) int {
	n, err := strconv.Atoi(a.named[key])
	if err != nil {
		a.t.Fatalf("%s=%q: %v", key, a.named[key], err)
	}
	return n
}

func (a args) dur(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		a.t.Fatal(err)
	}
	return d
}

// node reads "C" as node 2.
func (a args) node() int { return int(a.words[3][0] - 'A') }

func name(node int) string { return string(rune('A' + node)) }

var roundEvents = map[string]EventKind{
	"grant": Granted, "refuse": Refused, "silent": Silent, "unsent": Unsent,
	"raised": Raised, "raise-failed": RaiseFailed,
}

var renewalEvents = map[string]RenewalEventKind{
	"extended": Extended, "missing": Missing, "taken": Taken, "refusing": Refusing,
	"unanswered": Unanswered, "joined": Joined, "not-joined": NotJoined,
}

// do carries out one command:
//
//	round nodes= quorum= ttl= min=
//	at TIME EVENT NODE [sent=] [token=]      of a round
//	at TIME give-up
//	hold                                     goes on with the lease of the round
//	at TIME renew
//	at TIME EVENT NODE [sent=]               of a renewal
//	at TIME look
func (w *world) do(t *testing.T, command string) string {
	a := parse(t, command)
	switch a.words[0] {
	case "round":
		w.cfg = RoundConfig{
			Nodes: a.num("nodes"), Quorum: a.num("quorum"), TTL: a.dur(a.named["ttl"]),
			MinValidity: a.dur(a.named["min"]), Drift: Drift{Rate: 0.01, Floor: 2 * time.Millisecond},
		}
		w.round, w.history = NewRound(w.cfg), nil
		return w.round.Verdict().String()
	case "hold":
		w.holding = w.round.Holding()
		return "valid until " + time.Duration(w.holding.Until()).String()
	case "at":
		return w.at(a, Instant(a.dur(a.words[1])), a.words[2])
	}
	t.Fatalf("command %q", command)
	return ""
}

func (w *world) at(a args, now Instant, what string) string {
	sent := Instant(0)
	if s, ok := a.named["sent"]; ok {
		sent = Instant(a.dur(s))
	}
	switch kind, ok := roundEvents[what]; {
	case ok:
		ev := Event{Kind: kind, Node: a.node(), Sent: sent}
		if kind == Granted {
			ev.Token = uint64(a.num("token"))
		}
		w.history = append(w.history, timedEvent{now, ev})
		result := roundResult(w.round, w.round.Step(now, ev))
		crossCheck(a.t, w.cfg, w.history)
		return result
	case what == "give-up":
		return roundResult(w.round, w.round.GiveUp())
	case what == "renew":
		renewal, effects := NewRenewal(now, w.cfg.Nodes, w.cfg.TTL)
		w.renewal = renewal
		return w.renewalResult(now, effects)
	case what == "look":
		return w.leaseResult(now)
	}
	kind, ok := renewalEvents[what]
	if !ok {
		a.t.Fatalf("event %q", what)
	}
	return w.renewalResult(now, w.renewal.Step(now, &w.holding, RenewalEvent{Kind: kind, Node: a.node(), Sent: sent}))
}

func roundResult(r *Round, effects []Effect) string {
	s := r.Verdict().String()
	if r.Verdict() == Won {
		s += fmt.Sprintf(" token=%d until=%v", r.Token(), time.Duration(r.holding.Until()))
	}
	if r.Late() {
		s += " late"
	}
	var undo []string
	for _, e := range effects {
		if e.Kind == Raise {
			s += fmt.Sprintf("  raise %s from %d to %d", name(e.Node), e.Stored, e.Token)
		} else {
			undo = append(undo, name(e.Node))
		}
	}
	if len(undo) > 0 {
		s += "  undo " + strings.Join(undo, ",")
	}
	return s
}

func (w *world) renewalResult(now Instant, effects []RenewalEffect) string {
	s := w.renewal.Verdict().String() + "  " + w.leaseResult(now)
	words := map[RenewalEffectKind]string{Extend: "extend", JoinNode: "join", ReportVanished: "vanished"}
	by := map[string][]string{}
	for _, e := range effects {
		by[words[e.Kind]] = append(by[words[e.Kind]], name(e.Node))
	}
	keys := make([]string, 0, len(by))
	for k := range by {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		s += "  " + k + " " + strings.Join(by[k], ",")
	}
	return s
}

func (w *world) leaseResult(now Instant) string {
	var held []string
	for i := range w.cfg.Nodes {
		if w.holding.Held(i) {
			held = append(held, name(i))
		}
	}
	s := fmt.Sprintf("held=%s until=%v", strings.Join(held, ","), time.Duration(w.holding.Until()))
	if w.holding.Lost(now) {
		s += " lost"
	}
	if w.holding.doomed() {
		s += " doomed"
	}
	return s
}
