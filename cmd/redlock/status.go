package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

// statusLine is what status NAME prints with --json, and list for each name.
type statusLine struct {
	Name string `json:"name"`
	// NameBase64 is the name if it is not UTF-8, which JSON is.
	NameBase64  []byte     `json:"name_base64,omitempty"`
	Held        bool       `json:"held"`
	Partial     bool       `json:"partial"`
	Foreign     bool       `json:"foreign"`
	Broken      bool       `json:"broken"`
	Owner       string     `json:"owner"`
	Token       uint64     `json:"token"`
	Since       string     `json:"since"`
	RemainingMS int64      `json:"remaining_ms"`
	NoTTL       bool       `json:"no_ttl"`
	Nodes       []voteLine `json:"nodes"`
	// Waiting is how many wait, and Line the first of them; list leaves both out.
	Waiting *int         `json:"waiting,omitempty"`
	Line    []waiterLine `json:"line,omitempty"`
}

// waiterLine is somebody who waits.
type waiterLine struct {
	Owner  string `json:"owner"`
	Shared bool   `json:"shared"`
	Since  string `json:"since"`
}

type voteLine struct {
	Node        string `json:"node"`
	Outcome     string `json:"outcome"`
	TookUS      int64  `json:"took_us"`
	Owner       string `json:"owner"`
	RemainingMS int64  `json:"remaining_ms"`
	Error       string `json:"error"`
}

// nodeLine is what status and init print with --json, one for each node.
type nodeLine struct {
	Node     string `json:"node"`
	Standing string `json:"standing"`
	RunID    string `json:"run_id"`
	Version  string `json:"version"`
	LeftMS   int64  `json:"quarantine_ms"`
	Durable  bool   `json:"durable"`
	Error    string `json:"error"`
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status [flags] [NAME]",
		Short: "Say who holds a lock or, without NAME, how the nodes are",
		Args: func(_ *cobra.Command, args []string) error {
			if err := refuseURLs(args); err != nil {
				return err
			}
			if len(args) > 1 {
				return usagef("expected at most one NAME, got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, c config) error {
				if len(args) == 0 {
					nodes := lk.Nodes(ctx)
					return errors.Join(a.printNodes(nodes), fitQuorum(nodes, c.Quorum))
				}
				st, err := inspect(ctx, lk, args[0])
				if err != nil {
					return err
				}
				return a.printStatus(st)
			})
		},
	}
}

// inspect asks who holds a name. Nodes with another configuration are an error:
// they keep locks under other keys, and would call a lock free that is held.
func inspect(ctx context.Context, lk *redlock.Locker, name string) (redlock.Status, error) {
	if err := mismatch(lk.Nodes(ctx)); err != nil {
		return redlock.Status{}, err
	}
	return lk.Inspect(ctx, name)
}

// mismatch is an error if a node has another configuration than we.
func mismatch(nodes []redlock.NodeState) error {
	f := newFaults(len(nodes))
	var errs []error
	for _, n := range nodes {
		if errors.Is(n.Err, redlock.ErrMismatch) {
			f.add(n.Node, n.Err)
			errs = append(errs, fmt.Errorf("%s: %w", n.Node, n.Err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return brief{f.String(), errors.Join(errs...)}
}

// statusOf is st for programs.
func statusOf(st redlock.Status) statusLine {
	line := statusLine{
		Name: st.Name, Held: st.Held, Partial: st.Partial, Foreign: st.Foreign, Broken: st.Broken, Owner: st.Owner,
		Token: uint64(st.Token), RemainingMS: milliseconds(st.Remaining), NoTTL: st.NoTTL, Nodes: []voteLine{},
	}
	if !utf8.ValidString(st.Name) {
		line.NameBase64 = []byte(st.Name)
	}
	line.Since = timeText(st.Since)
	for _, v := range st.Votes {
		line.Nodes = append(line.Nodes, voteLine{
			Node: v.Node, Outcome: string(v.Outcome), TookUS: v.Took.Microseconds(),
			Owner: v.Owner, RemainingMS: milliseconds(v.Remaining), Error: errorText(v.Err),
		})
	}
	return line
}

// withLine adds to line who waits.
func withLine(line statusLine, st redlock.Status) statusLine {
	line.Waiting = &st.Waiting
	for _, w := range st.Line {
		line.Line = append(line.Line, waiterLine{Owner: w.Owner, Shared: w.Mode == redlock.Shared, Since: timeText(w.Since)})
	}
	return line
}

// timeText is t for programs, empty if it is not known.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// milliseconds is d in milliseconds, -1 for ever.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

func (a *app) printStatus(st redlock.Status) error {
	if a.json {
		return a.emit(withLine(statusOf(st), st))
	}
	if _, err := fmt.Fprintf(a.out, "%s: %s\n", st.Name, holderText(st)); err != nil {
		return err
	}
	if err := a.printLine(st); err != nil {
		return err
	}
	return a.printVotes(a.out, st.Votes)
}

// printLine says who waits, one a line.
func (a *app) printLine(st redlock.Status) error {
	for i, w := range st.Line {
		text := fmt.Sprintf("%q", w.Owner)
		if w.Mode == redlock.Shared {
			text += ", shared"
		}
		if !w.Since.IsZero() {
			text += fmt.Sprintf(", for %v", max(time.Since(w.Since), 0).Round(time.Second))
		}
		if _, err := fmt.Fprintf(a.out, "  %d. in line: %s\n", i+1, text); err != nil {
			return err
		}
	}
	if more := st.Waiting - len(st.Line); more > 0 {
		_, err := fmt.Fprintf(a.out, "  and %d more\n", more)
		return err
	}
	return nil
}

// holderText says who has the name.
func holderText(st redlock.Status) string {
	text, who := "free", fmt.Sprintf("%q", st.Owner)
	if st.Foreign {
		who = "a client of another kind"
	}
	switch {
	case st.Held:
		text = "held by " + who
		if st.Token != 0 {
			text += ", token " + st.Token.String()
		}
	case st.Partial:
		text = fmt.Sprintf("free, but %s has %d of %d nodes", who, holding(st.Votes), len(st.Votes))
		if silent := len(st.Votes) - answered(st.Votes); silent > 0 {
			text = fmt.Sprintf("not known: %s has %d of %d nodes, %d gave no answer", who, holding(st.Votes), len(st.Votes), silent)
		}
	}
	if st.Remaining > 0 {
		text += fmt.Sprintf(", %v left", st.Remaining.Round(time.Millisecond))
	}
	if st.NoTTL {
		text += ", without a TTL"
	}
	if st.Broken {
		text += ", broken: it will not be extended"
	}
	return text
}

// holding is how many nodes the one has who has most of them.
func holding(votes []redlock.Vote) int {
	most, at := 0, make(map[string]int)
	for _, v := range votes {
		if v.Holder != "" || errors.Is(v.Err, redlock.ErrForeignKey) {
			at[v.Holder]++
			most = max(most, at[v.Holder])
		}
	}
	return most
}

// printVotes says, with -v, what each node said.
func (a *app) printVotes(w io.Writer, votes []redlock.Vote) error {
	if !a.verbose {
		return nil
	}
	for _, v := range votes {
		if _, err := fmt.Fprintf(w, "  %s\n", v); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printNodes(nodes []redlock.NodeState) error {
	inUse := slices.ContainsFunc(nodes, func(n redlock.NodeState) bool { return n.HasRecords })
	for _, n := range nodes {
		var err error
		if a.json {
			err = a.emit(nodeLine{n.Node, n.Standing, n.RunID, n.Version, n.Left.Milliseconds(), n.Durable, errorText(n.Err)})
		} else {
			_, err = fmt.Fprintln(a.out, nodeText(n, inUse))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nodeText says in a line how a node is. inUse tells that others have records.
func nodeText(n redlock.NodeState, inUse bool) string {
	text := n.Node + " "
	if n.Durable && n.Standing != "durable" {
		text += "(durable) "
	}
	text += n.Standing // last, for grep, if there is nothing to say of it
	switch {
	case n.Err != nil:
		text += ": " + faultText(n.Err)
	case n.Standing == "new" && inUse:
		text += ": lost its data; its quarantine begins with the first lock that is taken"
	case n.Standing == "new":
		text += ": declare it with redlock init"
	}
	return text
}

// fitQuorum is an error if a lock could not be taken, as the nodes stand. Its
// text leaves out the nodes' own, which are printed, but they count for its
// code.
func fitQuorum(nodes []redlock.NodeState, need int) error {
	if need == 0 {
		need = len(nodes)/2 + 1
	}
	reasons := []error{redlock.ErrNoQuorum}
	for _, n := range nodes {
		switch {
		case n.Err != nil:
			reasons = append(reasons, n.Err)
		case n.Standing == "new": // the first client to use it puts it in quarantine
			reasons = append(reasons, redlock.ErrQuarantined)
		}
	}
	fit := len(nodes) - len(reasons) + 1
	if fit >= need {
		return nil
	}
	return coded{
		exitCode(errors.Join(reasons...)),
		fmt.Errorf("%w: %d of %d nodes vote, %d are needed", redlock.ErrNoQuorum, fit, len(nodes), need),
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
