package sim

import (
	"cmp"
	"fmt"
	"slices"

	"example.com/redlock/internal/core"
)

// Hold is what a client believes of one lease: that it held Name from Start,
// when Acquire returned, to the first of End, when it gave the lease up or was
// told that it is lost, and Deadline, the end of its validity.
type Hold struct {
	Name, Client int
	Token        uint64
	ByClock      bool         // the order of the token rests on a node's clock
	Called       core.Instant // when the attempt began
	Start        core.Instant
	End          core.Instant // zero: never
	Deadline     core.Instant
}

// Until is the end of the interval, which does not belong to it.
func (h *Hold) Until() core.Instant {
	if h.End == 0 {
		return h.Deadline
	}
	return min(h.End, h.Deadline)
}

func (h *Hold) String() string {
	return fmt.Sprintf("c%d token %d in [%d, %d) ns", h.Client, h.Token, h.Start, h.Until())
}

// CheckIntervals reports holds of one name that overlap.
func CheckIntervals(history []*Hold) error {
	byStart := slices.Clone(history)
	slices.SortStableFunc(byStart, func(a, b *Hold) int { return cmp.Compare(a.Start, b.Start) })
	last := map[int]*Hold{}
	for _, h := range byStart {
		if h.Until() <= h.Start {
			continue // over before anybody could act on it
		}
		before := last[h.Name]
		if before != nil && h.Start < before.Until() {
			return fmt.Errorf("intervals: %s is held twice: %v and %v", lockNames[h.Name], before, h)
		}
		last[h.Name] = h
	}
	return nil
}

// CheckTokens reports tokens of one name that are not unique, or smaller than
// one that had been granted before their attempt began. Clocks do not matter
// to them, except to those that are marked: with excuse these need not come after
// what went before. What comes after them must.
func CheckTokens(history []*Hold, excuse bool) error {
	byCall, byStart := slices.Clone(history), slices.Clone(history)
	slices.SortStableFunc(byCall, func(a, b *Hold) int { return cmp.Compare(a.Called, b.Called) })
	slices.SortStableFunc(byStart, func(a, b *Hold) int { return cmp.Compare(a.Start, b.Start) })
	owner := map[int]map[uint64]*Hold{}
	for _, h := range byStart {
		if owner[h.Name] == nil {
			owner[h.Name] = map[uint64]*Hold{}
		}
		if other := owner[h.Name][h.Token]; other != nil && !(excuse && h.ByClock) {
			return fmt.Errorf("tokens: %s has one token twice: %v and %v", lockNames[h.Name], other, h)
		}
		owner[h.Name][h.Token] = h
	}
	highest := map[int]*Hold{}
	for _, h := range byCall {
		for len(byStart) > 0 && byStart[0].Start < h.Called {
			if g := byStart[0]; highest[g.Name] == nil || g.Token > highest[g.Name].Token {
				highest[g.Name] = g
			}
			byStart = byStart[1:]
		}
		if g := highest[h.Name]; g != nil && g.Token > h.Token && !(excuse && h.ByClock) {
			return fmt.Errorf("tokens: %s: %v was granted before the attempt of %v began at %d", lockNames[h.Name], g, h, h.Called)
		}
	}
	return nil
}

// judgement is what a history comes to.
type judgement struct {
	failures []string
	// overlaps and disorder tell what was found and is excused: the faults went
	// beyond what leases bear, or the clocks were wrong that tokens rest on.
	overlaps, disorder bool
	// sound tells that nothing was to be excused.
	sound bool
}

// judge looks for what must not be in the history of a run.
func judge(c Config, s Script, history []*Hold) judgement {
	bearable := Broken(c, s) == ""
	var j judgement
	if err := CheckIntervals(history); err != nil {
		j.overlaps = !bearable
		if bearable {
			j.failures = append(j.failures, err.Error())
		}
	}
	agree := ClocksAgree(c, s)
	err := CheckTokens(history, !agree)
	if err != nil {
		j.failures = append(j.failures, err.Error())
	}
	j.disorder = err == nil && CheckTokens(history, false) != nil
	j.sound = bearable && !j.disorder
	return j
}

// checkRegister reports a lost update behind the gate.
func checkRegister(r *register) error {
	if r.value != r.accepted {
		return fmt.Errorf("register: %d writes were accepted and only %d remain", r.accepted, r.value)
	}
	return nil
}

// checkUndone reports an attempt that is over and left a node that it has asked
// for something without a release.
func checkUndone(a *attempt) error {
	if a.phase != undoing && a.phase != releasing {
		return nil
	}
	for i, l := range a.lanes {
		if l.touched && !l.void && !l.released && l.task == nil {
			return fmt.Errorf("undo: c%d's attempt %s was not released on n%d", a.client.index, a.id, i)
		}
	}
	return nil
}
