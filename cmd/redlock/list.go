package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list [flags] [PATTERN]",
		Short: "Say who holds which locks, since when and for how long",
		Long: `Lists the locks whose names match PATTERN, or all: who has each, since when as
far as its token tells, for how long unless it is extended, and on how many
nodes. What too few nodes have is listed as well, and keys without a TTL, with
what to do about them.

In PATTERN * stands for any number of bytes and ? for one, [abc] [a-z] [^a-z] for
one of a class; a backslash takes away the meaning of what follows. Quote it, or
the shell will replace it by names of files.`,
		Args: func(_ *cobra.Command, args []string) error {
			if err := refuseURLs(args); err != nil {
				return err
			}
			if len(args) > 1 {
				return usagef("expected at most one PATTERN, got %d arguments: quote it", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, _ config) error {
				return a.list(ctx, lk, strings.Join(args, ""))
			})
		},
	}
}

// list prints what was found also if it may not be all: nodes with another
// configuration may keep locks under other keys.
func (a *app) list(ctx context.Context, lk *redlock.Locker, pattern string) error {
	found, err := lk.List(ctx, pattern)
	if errors.Is(err, redlock.ErrBadOption) || err != nil && ctx.Err() != nil {
		return err
	}
	if err := a.printList(found); err != nil {
		return err
	}
	nodes := lk.Nodes(ctx)
	if err := mismatch(nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		if err == nil && n.Err != nil {
			a.log.Warn("node does not vote", "node", n.Node, "reason", faultText(n.Err))
		}
	}
	return err
}

func (a *app) printList(found []redlock.Status) error {
	if a.json {
		for _, st := range found {
			if err := a.emit(statusOf(st)); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tOWNER\tTOKEN\tSINCE\tREMAINING\tNODES\tNOTE") // Flush has the error
	for _, st := range found {
		fmt.Fprintln(w, strings.Join(columns(st), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, st := range found {
		if !a.verbose {
			break
		}
		if _, err := fmt.Fprintf(a.out, "\n%s:\n", printable(st.Name)); err != nil {
			return err
		}
		if err := a.printVotes(a.out, st.Votes); err != nil {
			return err
		}
	}
	return printEndless(a.out, found)
}

// columns is one line of the table. What is not there, or not known, is a dash.
func columns(st redlock.Status) []string {
	owner, token, since := "", "", ""
	if st.Owner != "" {
		owner = printable(st.Owner)
	}
	if st.Token != 0 {
		token = st.Token.String()
	}
	if !st.Since.IsZero() {
		since = st.Since.Format(time.RFC3339)
	}
	columns := []string{
		printable(st.Name), owner, token, since, left(st),
		fmt.Sprintf("%d/%d", holding(st.Votes), len(st.Votes)), notes(st),
	}
	for i, text := range columns {
		columns[i] = cmp.Or(text, "-")
	}
	return columns
}

// notes says what is out of the ordinary.
func notes(st redlock.Status) string {
	var notes []string
	note := func(says bool, text string) {
		if says {
			notes = append(notes, text)
		}
	}
	allSaid := answered(st.Votes) == len(st.Votes)
	note(st.Partial && allSaid, "partial")
	note(st.Partial && !allSaid, "partial as far as known")
	note(st.Broken, "broken")
	note(st.Foreign, "no lease of ours")
	note(st.NoTTL, "no TTL")
	return strings.Join(notes, ", ")
}

// left is how long a lease lasts that is not extended: until a quorum is free,
// or, if one is free already, until all nodes are.
func left(st redlock.Status) string {
	d := st.Remaining
	if d == 0 {
		for _, v := range st.Votes {
			if d >= 0 && (v.Remaining < 0 || v.Remaining > d) {
				d = v.Remaining
			}
		}
	}
	switch {
	case d < 0:
		return "forever"
	case d == 0:
		return ""
	}
	return d.Round(100 * time.Millisecond).String()
}

// printEndless says what to do about keys that never expire.
func printEndless(w io.Writer, found []redlock.Status) error {
	var text strings.Builder
	for _, st := range found {
		if !st.NoTTL {
			continue
		}
		if text.Len() == 0 {
			text.WriteString("\nThese have no TTL. If nobody works under the lock any more:\n")
		}
		var at []string
		for _, v := range st.Votes {
			if v.Remaining < 0 {
				at = append(at, v.Node)
			}
		}
		fmt.Fprintf(&text, "  %s (on %s)\n", remedy(st), strings.Join(at, ", "))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// remedy is how to get rid of what never ends by itself.
func remedy(st redlock.Status) string {
	switch {
	case st.Foreign:
		return printable(st.Name) + ": find out who writes its key, which is no lease, and DEL it"
	case strings.Contains(st.Name, "\x00"):
		return printable(st.Name) + ": no shell can pass this name: use Locker.Break, or DEL its key"
	}
	return "redlock break --now -- " + shellWord(st.Name)
}

// shellWord is s as a shell takes it.
func shellWord(s string) string {
	const plain = "%+,-./:=@_"
	odd := func(r rune) bool {
		return r > unicode.MaxASCII || !(unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(plain, r))
	}
	switch {
	case !strings.ContainsFunc(s, odd):
		return s
	case !strings.ContainsFunc(s, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return "$'" + b.String() + "'"
}
