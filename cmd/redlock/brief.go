package main

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/redlock"
	"example.com/redlock/backend"
)

// brief is an error with a text for people that leaves out what each node said.
type brief struct {
	text string
	err  error
}

func (b brief) Error() string { return b.err.Error() }

func (b brief) Unwrap() error { return b.err }

// fullText is all that err says, on one line.
func fullText(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) { // of joined errors, and of YAML
		parts = append(parts, strings.TrimPrefix(strings.TrimSpace(line), "redlock: "))
	}
	return strings.Join(parts, "; ")
}

// briefText is err for people: each thing once. -v and --json have the rest.
func briefText(err error) string {
	switch e := err.(type) {
	case brief:
		return e.text
	case coded:
		return briefText(e.err)
	case *redlock.QuorumError:
		return briefQuorum(e)
	}
	return fullText(err)
}

// credentials reach up to the last @: passwords may hold anything.
var credentials = regexp.MustCompile(`(?s)://.*@`)

// mask hides in the text of err the passwords of URLs that were given where
// something else is expected. What nodes said holds none, but names and owner
// labels that may look like it.
func mask(err error, text string) string {
	if _, asked := errors.AsType[*redlock.QuorumError](err); asked {
		return text
	}
	return credentials.ReplaceAllString(text, "://***@")
}

// briefQuorum says an error without its votes.
func briefQuorum(e *redlock.QuorumError) string {
	if held(e) {
		return printable(e.Name) + " is " + holder(e.Votes)
	}
	votes := e.Votes
	if errors.Is(e, redlock.ErrQuarantined) { // which the reason has all of
		votes = slices.DeleteFunc(slices.Clone(votes), func(v redlock.Vote) bool { return v.Outcome == backend.OutcomeQuarantined })
	}
	faults := voteFaults(votes)
	said := strings.TrimSpace(e.Op + " " + printable(e.Name))
	for _, r := range e.Reasons {
		if text := faults.unsaid(r); text != "" {
			said += ": " + text
		}
	}
	if errors.Is(e, redlock.ErrNoQuorum) && len(e.Votes) > 0 {
		n, most := answered(e.Votes), ""
		if more := undecided(e.Votes); more > 0 { // decided without them
			n, most = n+more, "at most "
		}
		said += fmt.Sprintf(": %s%d of %d nodes answered, need %d", most, n, len(e.Votes), e.Need)
	}
	if len(faults.texts) > 0 {
		said += ": " + faults.String()
	}
	return said
}

// holder says who holds a name, and for how long without renewal.
func holder(votes []redlock.Vote) string {
	owner, left := "", time.Duration(0)
	for _, v := range votes {
		if v.Holder != "" && v.Remaining >= left {
			owner, left = v.Owner, v.Remaining
		}
	}
	text := "held by others"
	if owner != "" {
		text = fmt.Sprintf("held by %q", owner)
	}
	if left > 0 {
		text += fmt.Sprintf(", %.1f s left", left.Seconds())
	}
	return text
}

func answered(votes []redlock.Vote) int {
	n := 0
	for _, v := range votes {
		if v.Outcome == backend.OutcomeGranted || v.Outcome == backend.OutcomeRefused {
			n++
		}
	}
	return n
}

// undecided is how many nodes could have answered, had they been asked or waited
// for.
func undecided(votes []redlock.Vote) int {
	n := 0
	for _, v := range votes {
		if v.Err == nil && (v.Outcome == backend.OutcomeUnasked || v.Outcome == backend.OutcomeOpen) {
			n++
		}
	}
	return n
}

// printable is a name for a sentence: quoted only if it would not read well.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.Contains(name, " ") {
		return quoted
	}
	return name
}

// faults are what nodes said or did that was no answer.
type faults struct {
	nodes int // in all
	texts []string
	// at has the nodes for each text.
	at map[string][]string
}

func newFaults(nodes int) *faults { return &faults{nodes: nodes, at: make(map[string][]string)} }

func voteFaults(votes []redlock.Vote) *faults {
	f := newFaults(len(votes))
	for _, v := range votes {
		switch {
		case v.Err != nil:
			f.add(v.Node, v.Err)
		case v.Outcome == backend.OutcomeSilent:
			f.add(v.Node, errSilent)
		}
	}
	return f
}

var errSilent = errors.New("no answer in time")

func nodeFaults(nodes []redlock.NodeState) *faults {
	f := newFaults(len(nodes))
	for _, n := range nodes {
		if n.Err != nil {
			f.add(n.Node, n.Err)
		}
	}
	return f
}

func (f *faults) add(node string, err error) {
	text := faultText(err)
	if len(f.at[text]) == 0 {
		f.texts = append(f.texts, text)
	}
	f.at[text] = append(f.at[text], node)
}

// faultText is what a node's error has in common with the same of other nodes.
func faultText(err error) string {
	text := strings.TrimPrefix(err.Error(), redlock.ErrNoQuorum.Error()+": ")
	if op, ok := errors.AsType[*net.OpError](err); ok {
		where := ""
		if op.Source != nil {
			where = op.Source.String() + "->"
		}
		if op.Addr != nil {
			text = strings.ReplaceAll(text, " "+where+op.Addr.String(), "")
		}
	}
	return text
}

// unsaid is what err says beyond what nodes said.
func (f *faults) unsaid(err error) string {
	if len(f.at[faultText(err)]) > 0 {
		return ""
	}
	text := err.Error()
	for _, said := range f.texts { // the nodes' own may be its cause
		text = strings.TrimSuffix(text, ": "+said)
	}
	return text
}

// String says each fault once, with the nodes that have it.
func (f *faults) String() string {
	var lines []string
	for _, text := range f.texts {
		at := f.at[text]
		switch {
		case len(at) == f.nodes && f.nodes > 1:
			text = fmt.Sprintf("all %d nodes: %s", f.nodes, text)
		default:
			text = strings.Join(at, ", ") + ": " + text
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "; ")
}
