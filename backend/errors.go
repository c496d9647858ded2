package backend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The reasons. Each can be found with errors.Is in whatever error a Backend
// returns; docs/errors.md says what to do about each.
var (
	ErrHeld         = errors.New("held by another")
	ErrNoQuorum     = errors.New("no quorum")
	ErrQuarantined  = errors.New("node in quarantine")
	ErrLost         = errors.New("lease lost")
	ErrReleased     = errors.New("lease released")
	ErrMaxHold      = errors.New("maximum hold reached")
	ErrClosed       = errors.New("locker closed")
	ErrMismatch     = errors.New("configuration differs from the node's")
	ErrUnfit        = errors.New("node unfit")
	ErrNotPermitted = errors.New("not permitted")
	ErrForeignKey   = errors.New("key belongs to something else")
	ErrBadOption    = errors.New("bad option")
	ErrOverloaded   = errors.New("too many attempts under way")
)

// Outcome is what a node made of an attempt.
type Outcome string

// The outcomes.
const (
	// OutcomeGranted: the node gave its vote, or did what it was asked.
	OutcomeGranted Outcome = "granted"
	// OutcomeRefused: the node answered that it cannot, because of a holder.
	OutcomeRefused Outcome = "refused"
	// OutcomeSilent: no answer in time. The node may have carried it out.
	OutcomeSilent Outcome = "silent"
	// OutcomeFailed: the node, or the way to it, answered with an error.
	OutcomeFailed Outcome = "failed"
	// OutcomeOpen: the matter was decided before the node's answer was in.
	OutcomeOpen Outcome = "no answer yet"
	// OutcomeQuarantined: the node may have forgotten leases, and does not vote
	// for as long as Vote.Remaining says.
	OutcomeQuarantined Outcome = "quarantined"
	// OutcomeUnasked: nothing was sent.
	OutcomeUnasked Outcome = "not asked"
)

// Vote is what one node answered.
type Vote struct {
	// Node is the node's address, without credentials.
	Node    string
	Outcome Outcome
	// Took is how long the answer took.
	Took time.Duration
	// Holder identifies who has the name there, Owner is its label, and
	// Remaining how long its lease would last without renewal, -1 for ever.
	// (OutcomeQuarantined: how long the node will not vote.)
	Holder    string
	Owner     string
	Remaining time.Duration
	// Err says more about a vote that was not granted, and may be nil.
	Err error
}

// String says it in one line.
func (v Vote) String() string {
	s := fmt.Sprintf("%s %s", v.Node, v.Outcome)
	if v.Took > 0 {
		s += " " + v.Took.Round(10*time.Microsecond).String()
	}
	if v.Owner != "" {
		s += fmt.Sprintf(", held by %q", v.Owner)
	}
	if v.Err != nil {
		s += ", " + v.Err.Error()
	}
	return s
}

// QuorumError says why a quorum did not do what it was asked, node by node.
type QuorumError struct {
	// Op is what was asked: "acquire", "extend", "release", …
	Op string
	// Name of the lock; empty if it is about none.
	Name string
	// Need is how many nodes had to agree.
	Need  int
	Votes []Vote
	// Reasons are the sentinels, and whatever else ended the operation, such
	// as the caller's context.Canceled. errors.Is finds all of them.
	Reasons []error
	// MayRemain tells that some node may still hold a key of the caller.
	MayRemain bool
}

// Error says the whole of it in one line.
func (e *QuorumError) Error() string {
	var b strings.Builder
	b.WriteString("redlock: " + e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	b.WriteString(": ")
	for i, r := range e.Reasons {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(r.Error())
	}
	if len(e.Votes) > 0 {
		granted := 0
		for _, v := range e.Votes {
			if v.Outcome == OutcomeGranted {
				granted++
			}
		}
		fmt.Fprintf(&b, ": %d of %d nodes granted, need %d", granted, len(e.Votes), e.Need)
		for i, v := range e.Votes {
			sep := "; "
			if i == 0 {
				sep = " ("
			}
			b.WriteString(sep + v.String())
		}
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As the reasons. The nodes' own errors stay
// in Votes: a node's timeout is not the caller's DeadlineExceeded.
func (e *QuorumError) Unwrap() []error { return e.Reasons }

// MayBeHeld tells whether, after err, some node may still hold a key of the
// caller: because a release was not confirmed by a quorum, or because an
// acquire that failed is still being undone. Such a key goes with its TTL at
// the latest. Of an error about several names it tells whether one may be held:
// errors.As would stop at the first.
func MayBeHeld(err error) bool {
	switch e := err.(type) {
	case *QuorumError:
		return e.MayRemain || slices.ContainsFunc(e.Reasons, MayBeHeld)
	case interface{ Unwrap() error }:
		return MayBeHeld(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), MayBeHeld)
	}
	return false
}
