package backend_test

import (
	"errors"
	"fmt"
	"testing"

	"example.com/redlock/backend"
)

// Whichever of several errors it is that says so.
func TestMayBeHeldLooksAtEveryError(t *testing.T) {
	gone := &backend.QuorumError{Op: "release", Name: "a", Reasons: []error{backend.ErrLost}}
	left := &backend.QuorumError{Op: "release", Name: "b", Reasons: []error{backend.ErrNoQuorum}, MayRemain: true}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{backend.ErrNoQuorum, false},
		{gone, false},
		{left, true},
		{fmt.Errorf("a job: %w", left), true},
		{fmt.Errorf("a job: %w", gone), false},
		{errors.Join(gone, left), true},
		{errors.Join(errors.New("another"), fmt.Errorf("a job: %w", errors.Join(gone, left))), true},
		{&backend.QuorumError{Op: "extend", Name: "b", Reasons: []error{left}}, true},
		{errors.Join(gone, gone), false},
	} {
		if got := backend.MayBeHeld(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
