package sim

import (
	"fmt"
	"slices"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// absence is the quarantine of a node in a walk. Without time it lasts until what
// was under way when it began is given up.
type absence struct {
	guard   string // the quarantine by name; empty while the node votes
	since   core.Instant
	over    bool
	reports []core.TokenReport
	asked   int // how many of the others have been asked for a report
}

// victim draws a node to meddle with: often one that has done its part for a token
// that is still being agreed on.
func (w *walk) victim() int {
	for _, a := range w.current {
		if a == nil || !slices.Contains(a.waits, node.Raise) || w.rnd.IntN(2) == 0 {
			continue
		}
		if i := slices.Index(a.waits, 0); i >= 0 {
			return i
		}
	}
	return w.rnd.IntN(len(w.nodes))
}

// meddle has a node keep its data for later, or lose what it has.
func (w *walk) meddle(i int) {
	if w.rnd.IntN(2) == 0 {
		w.backups[i] = w.nodes[i].Clone()
		return
	}
	verb := pick(w.rnd, Restart, Restore, Promote, Flush)
	life := fmt.Sprintf("n%dx%d", i, w.now)
	switch verb {
	case Restart:
		w.nodes[i].Restart(life, true)
	case Restore:
		w.nodes[i] = w.backups[i].Clone()
		w.nodes[i].Restart(life, true)
	case Promote:
		runID := w.nodes[i].RunID()
		w.nodes[i] = w.backups[i].Clone()
		w.nodes[i].Restart(runID, true)
		w.nodes[i].Promote(life)
	case Flush:
		w.nodes[i].Flush()
	}
	w.notef("n%d: %s", i, verb)
	w.greet(i)
}

// greet has all clients know what the node shows.
func (w *walk) greet(i int) {
	r := w.nodes[i].Hello(node.Hello{Conf: w.conf, Nonce: fmt.Sprint(w.now)}, epoch)
	w.guards[i] = node.Guard{Life: r.Life, Conf: w.conf.String()}.String()
	w.absences[i] = absence{}
	if r.Standing == node.StandingQuarantined {
		w.absences[i] = absence{guard: r.Guard, since: w.now, reports: make([]core.TokenReport, len(w.nodes))}
	}
}

// readmit takes a node in quarantine, if there is one, a step further: its time
// passes, some of the others are asked for their counters, it votes again. Anything
// may happen in between.
func (w *walk) readmit() bool {
	var away []int
	for i, a := range w.absences {
		if a.guard != "" {
			away = append(away, i)
		}
	}
	if len(away) == 0 {
		return false
	}
	i := pick(w.rnd, away...)
	a := &w.absences[i]
	switch {
	case !a.over:
		w.notef("n%d has been away for long enough", i)
		a.over = true
		w.outlive(a.since)
	case a.asked < len(w.nodes):
		for a.asked < len(w.nodes) && w.rnd.IntN(4) != 0 {
			w.report(i, a)
		}
	default:
		w.lift(i, a)
	}
	return true
}

// outlive has the attempts that began before an instant be over.
func (w *walk) outlive(since core.Instant) {
	for client, a := range w.current {
		if a != nil && a.begun <= since {
			w.giveUp(client)
		}
	}
}

// report asks the next node for its counters, unless that is in vain.
func (w *walk) report(i int, a *absence) {
	from := a.asked
	a.asked++
	if from == i || w.rnd.IntN(4) == 0 {
		return
	}
	r := w.nodes[from].Tokens(node.Tokens{Guard: w.guards[from]}, epoch)
	a.reports[from] = core.TokenReport{Voting: r.Voting, Highest: r.Highest, ByClock: r.ByClock}
	w.notef("n%d tells n%d: %d, voting: %v", from, i, r.Highest, r.Voting)
}

// lift readmits a node if enough others have reported, or asks them anew. In the end
// it rests on a clock: one that is right, and ahead of all tokens.
func (w *walk) lift(i int, a *absence) {
	floor, sure, _ := core.Floor(len(w.nodes), w.quorum, a.reports, 0)
	if !sure && w.rnd.IntN(3) != 0 {
		a.asked, a.reports = 0, make([]core.TokenReport, len(w.nodes))
		return
	}
	if !sure {
		floor = 0
		for _, h := range w.history {
			floor = max(floor, h.Token)
		}
	}
	w.notef("n%d votes again, above %d", i, floor)
	w.nodes[i].Watch(node.Watch{Guard: a.guard, Credit: 1, Lift: true, Need: 1, Conf: w.conf.String(), Floor: floor}, epoch)
	w.greet(i)
}
