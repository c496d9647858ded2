package backend_test

import (
	"errors"
	"fmt"

	"example.com/redlock/backend"
)

// The error of a Backend says what happened, why, and what each node answered.
func ExampleQuorumError() {
	var err error = &backend.QuorumError{
		Op: "acquire", Name: "nightly", Need: 2,
		Votes: []backend.Vote{
			{Node: "a:6379/0", Outcome: backend.OutcomeGranted},
			{Node: "b:6379/0", Outcome: backend.OutcomeRefused, Owner: "host-b"},
			{Node: "c:6379/0", Outcome: backend.OutcomeSilent},
		},
		Reasons:   []error{backend.ErrNoQuorum},
		MayRemain: true,
	}
	fmt.Println(err)
	fmt.Println("no quorum:", errors.Is(err, backend.ErrNoQuorum))
	fmt.Println("a key may remain:", backend.MayBeHeld(err))
	// Output:
	// redlock: acquire "nightly": no quorum: 1 of 3 nodes granted, need 2 (a:6379/0 granted; b:6379/0 refused, held by "host-b"; c:6379/0 silent)
	// no quorum: true
	// a key may remain: true
}
