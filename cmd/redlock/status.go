package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

// statusLine is what status NAME prints with --json.
type statusLine struct {
	Name        string     `json:"name"`
	Held        bool       `json:"held"`
	Foreign     bool       `json:"foreign"`
	Broken      bool       `json:"broken"`
	Owner       string     `json:"owner"`
	Token       uint64     `json:"token"`
	RemainingMS int64      `json:"remaining_ms"`
	Nodes       []voteLine `json:"nodes"`
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

func (a *app) printStatus(st redlock.Status) error {
	if a.json {
		line := statusLine{
			Name: st.Name, Held: st.Held, Foreign: st.Foreign, Broken: st.Broken, Owner: st.Owner,
			Token: uint64(st.Token), RemainingMS: st.Remaining.Milliseconds(), Nodes: []voteLine{},
		}
		for _, v := range st.Votes {
			line.Nodes = append(line.Nodes, voteLine{
				Node: v.Node, Outcome: string(v.Outcome), TookUS: v.Took.Microseconds(),
				Owner: v.Owner, RemainingMS: v.Remaining.Milliseconds(), Error: errorText(v.Err),
			})
		}
		return a.emit(line)
	}
	text := "free"
	switch {
	case st.Foreign:
		text = "held by a client of another kind"
	case st.Held:
		text = fmt.Sprintf("held by %q", st.Owner)
		if st.Token != 0 {
			text += ", token " + st.Token.String()
		}
	}
	if st.Remaining > 0 {
		text += fmt.Sprintf(", %v left", st.Remaining.Round(time.Millisecond))
	}
	if st.Broken {
		text += ", broken: it will not be extended"
	}
	if _, err := fmt.Fprintf(a.out, "%s: %s\n", st.Name, text); err != nil {
		return err
	}
	if a.verbose {
		for _, v := range st.Votes {
			if _, err := fmt.Fprintf(a.out, "  %s\n", v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) printNodes(nodes []redlock.NodeState) error {
	for _, n := range nodes {
		var err error
		if a.json {
			err = a.emit(nodeLine{n.Node, n.Standing, n.RunID, n.Version, errorText(n.Err)})
		} else if n.Err != nil {
			_, err = fmt.Fprintf(a.out, "%s %s: %s\n", n.Node, n.Standing, faultText(n.Err))
		} else {
			_, err = fmt.Fprintf(a.out, "%s %s\n", n.Node, n.Standing)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
		if n.Err != nil {
			reasons = append(reasons, n.Err)
		}
	}
	fit := len(nodes) - len(reasons) + 1
	if fit >= need {
		return nil
	}
	return coded{
		exitCode(errors.Join(reasons...)),
		fmt.Errorf("%w: %d of %d nodes are fit, need %d", redlock.ErrNoQuorum, fit, len(nodes), need),
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
