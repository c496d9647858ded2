package main

import (
	"context"
	"fmt"
	"strings"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

// exitMend is the code of a doctor that found something to mend, although locks
// can be taken.
const exitMend = 1

// findingLine is what doctor prints with --json, one for each check.
type findingLine struct {
	Node     string `json:"node"`
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Text     string `json:"text"`
	Remedy   string `json:"remedy"`
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Examine every node: what is wrong, and what to do about it",
		Long: fmt.Sprintf(`Puts every node to every check, says what is wrong and what to do about it, and
changes nothing. It takes a second or two: it looks at the nodes' clocks twice.
With -v it also shows the checks that found nothing.

Exit codes: 0 all is well, or there are hints only; %d locks can be taken, but
something should be mended; 69, 77 or 78, as of other commands, if no lock could
be taken, as the nodes are.`, exitMend),
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, _ config) error {
				findings, err := lk.Doctor(ctx)
				if printErr := a.printFindings(findings); err == nil && printErr != nil {
					return printErr
				}
				return prognosis(findings, err)
			})
		},
	}
}

// prognosis is the error to leave with. What was found has been printed, so that
// it has few words, or none.
func prognosis(findings []redlock.Finding, err error) error {
	mend := false
	for _, f := range findings {
		if f.Check == "votes" && err != nil {
			return brief{"no quorum: " + f.Text, err}
		}
		mend = mend || f.Severity == redlock.SeverityWarning || f.Severity == redlock.SeverityFailure
	}
	if err == nil && mend {
		return coded{code: exitMend}
	}
	return err
}

func (a *app) printFindings(findings []redlock.Finding) error {
	if a.json {
		for _, f := range findings {
			if err := a.emit(findingLine{f.Node, f.Check, string(f.Severity), f.Text, f.Remedy}); err != nil {
				return err
			}
		}
		return nil
	}
	for len(findings) > 0 {
		n := 1
		for n < len(findings) && findings[n].Node == findings[0].Node {
			n++
		}
		if err := a.printPatient(findings[:n]); err != nil {
			return err
		}
		findings = findings[n:]
	}
	return nil
}

// printPatient prints the findings about one node, or about all of them.
func (a *app) printPatient(findings []redlock.Finding) error {
	name, sum := findings[0].Node, "votes"
	if name == "" {
		name = "all nodes"
	}
	var text strings.Builder
	for _, f := range findings {
		switch {
		case f.Check == "votes": // of all nodes
			sum = f.Text
		case f.Severity == redlock.SeverityFailure:
			sum = "does not vote"
		}
		if f.Severity != redlock.SeverityOK || a.verbose {
			fmt.Fprintf(&text, "  %s, %s: %s\n", f.Severity, f.Check, f.Text)
		}
		if f.Remedy != "" {
			fmt.Fprintf(&text, "    to do: %s\n", f.Remedy)
		}
	}
	_, err := fmt.Fprintf(a.out, "%s: %s\n%s", name, sum, text.String())
	return err
}
