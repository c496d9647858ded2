package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/redlock"
)

// sayWait returns an OnWait that says what is in the way: in the foreground of a terminal
// a status that changes, elsewhere a line for each thing.
func (a *app) sayWait(name string) func(redlock.Wait) {
	var said string
	return func(w redlock.Wait) {
		held := errors.Is(w.Err, redlock.ErrHeld)
		// These may take long; what is known of the nodes would be old by then.
		if held || errors.Is(w.Err, redlock.ErrQuarantined) {
			a.reports.pass()
		}
		if columns := a.statusColumns(); columns > 0 {
			a.said.show(clip("redlock: "+graphic(waitText(name, w)), columns))
			return
		}
		// The text of an error differs each time, by how long nodes took.
		now := fmt.Sprint(w.Owner, held, errors.Is(w.Err, redlock.ErrQuarantined))
		if now == said {
			return
		}
		said = now
		attrs := []any{"name", name}
		switch {
		case held:
			attrs = append(attrs, "owner", w.Owner)
		case w.Err != nil:
			attrs = append(attrs, "error", w.Err)
		}
		if w.Remaining > 0 {
			attrs = append(attrs, "remaining", w.Remaining)
		}
		a.log.Warn("waiting", attrs...)
	}
}

// statusColumns is how wide a status may be, 0 where none is shown: for programs, with
// -v, which says each thing, with -q, and where it would be written into what somebody
// else types.
func (a *app) statusColumns() int {
	if a.json || a.verbose || a.quiet {
		return 0
	}
	return foregroundColumns(a.err)
}

// waitText says in a line what is in the way.
func waitText(name string, w redlock.Wait) string {
	text := "waiting for " + name
	if w.Position > 0 {
		text += fmt.Sprintf(", %d ahead", w.Position)
	}
	switch {
	case errors.Is(w.Err, redlock.ErrHeld) && w.Owner != "":
		text += ", held by " + w.Owner
	case errors.Is(w.Err, redlock.ErrHeld):
		text += ", held by somebody"
	case len(w.Quarantined) > 0:
		text += ", in quarantine: " + strings.Join(w.Quarantined, " ")
	case w.Err != nil:
		text += ": " + briefText(w.Err)
	}
	if w.Remaining > 0 {
		text += fmt.Sprintf(", %v left", w.Remaining.Round(time.Second))
	}
	return text
}
