package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/backend"
)

func TestBriefTextSaysEachThingOnce(t *testing.T) {
	vote := func(node string, outcome backend.Outcome, err error) redlock.Vote {
		return redlock.Vote{Node: node, Outcome: outcome, Err: err}
	}
	holder := func(node, owner string) redlock.Vote {
		return redlock.Vote{Node: node, Outcome: backend.OutcomeRefused, Holder: "h", Owner: owner, Remaining: 1240 * time.Millisecond}
	}
	other := fmt.Errorf("%w: max TTL", redlock.ErrMismatch)
	broken := errors.New("broken pipe")
	ask := func(name string, reason error, votes ...redlock.Vote) error {
		return &redlock.QuorumError{Op: "acquire", Name: name, Need: 2, Votes: votes, Reasons: []error{reason}}
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("redlock: x"), "x"},
		{errors.Join(errors.New("redlock: x"), errors.New("redlock: y")), "x; y"},
		{ask("n", redlock.ErrHeld, holder("a", "me"), holder("b", "me"), vote("c", backend.OutcomeOpen, nil)), `n is held by "me", 1.2 s left`},
		{coded{3, ask("n", redlock.ErrHeld, holder("a", ""))}, "n is held by others, 1.2 s left"},
		{ask("a b\n", redlock.ErrHeld), `"a b\n" is held by others`},
		{ask("s3://b/x", redlock.ErrHeld, holder("a", "me@vm")), `s3://b/x is held by "me@vm", 1.2 s left`},
		{ask("n", redlock.ErrLost, vote("a", backend.OutcomeRefused, nil)), "acquire n: lease lost"},
		{ask("n", redlock.ErrNoQuorum, vote("a", backend.OutcomeGranted, nil), vote("b", backend.OutcomeSilent, nil), vote("c", backend.OutcomeSilent, nil)),
			"acquire n: no quorum: 1 of 3 nodes answered, need 2: b, c: no answer in time"},
		{ask("n", redlock.ErrNoQuorum, vote("a", backend.OutcomeFailed, broken), vote("b", backend.OutcomeSilent, nil), vote("c", backend.OutcomeFailed, broken)),
			"acquire n: no quorum: 0 of 3 nodes answered, need 2: a, c: broken pipe; b: no answer in time"},
		{ask("n", redlock.ErrNoQuorum, vote("a", backend.OutcomeFailed, broken), vote("b", backend.OutcomeUnasked, nil), vote("c", backend.OutcomeFailed, broken)),
			"acquire n: no quorum: at most 1 of 3 nodes answered, need 2: a, c: broken pipe"},
		{ask("n", other, vote("a", backend.OutcomeFailed, other), vote("b", backend.OutcomeFailed, other)),
			"acquire n: all 2 nodes: configuration differs from the node's: max TTL"},
		{ask("n", fmt.Errorf("%w: %w", redlock.ErrLost, broken), vote("a", backend.OutcomeRefused, broken), vote("b", backend.OutcomeRefused, broken), vote("c", backend.OutcomeGranted, nil)),
			"acquire n: lease lost: a, b: broken pipe"},
		{usagef("%q is bad", "redis://u:a@b@h"), `wrong usage: "redis://***@h" is bad`},
	} {
		if got := mask(c.err, briefText(c.err)); got != c.want {
			t.Errorf("%v\nis said as %q\nwant       %q", c.err, got, c.want)
		}
	}
}
