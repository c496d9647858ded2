package redlock

import (
	"errors"

	"example.com/redlock/backend"
)

// The reasons why something was not done. errors.Is finds them in every error
// that this package returns; docs/errors.md says for each what it means,
// whether a key may remain, and what to do.
var (
	// ErrHeld: others hold the name, and the call was not to wait longer.
	ErrHeld = backend.ErrHeld
	// ErrNoQuorum: too few nodes answered, or their votes stayed split.
	ErrNoQuorum = backend.ErrNoQuorum
	// ErrQuarantined: too many nodes may not vote yet after they may have
	// forgotten leases.
	ErrQuarantined = backend.ErrQuarantined
	// ErrLost: the lease ended by itself. It never comes back.
	ErrLost = backend.ErrLost
	// ErrReleased: the lease was given back, or moved out by Handle.
	ErrReleased = backend.ErrReleased
	// ErrNested: the call was given the context of a lease of the same name, and would
	// have waited for that to end.
	ErrNested = errors.New("the context belongs to a lease of this name")
	// ErrMaxHold: the lease reached AcquireOptions.MaxHold.
	ErrMaxHold = backend.ErrMaxHold
	// ErrClosed: the Locker is closed.
	ErrClosed = backend.ErrClosed
	// ErrMismatch: a node is configured for other members, quorum, MaxTTL or
	// kind of keys than this Locker.
	ErrMismatch = backend.ErrMismatch
	// ErrUnfit: a node cannot be trusted with a vote.
	ErrUnfit = backend.ErrUnfit
	// ErrNotPermitted: the credentials do not allow what a lock needs. It
	// comes together with ErrUnfit.
	ErrNotPermitted = backend.ErrNotPermitted
	// ErrForeignKey: the key belongs to something else and is not touched.
	ErrForeignKey = backend.ErrForeignKey
	// ErrBadOption: an argument or option is out of range. Nothing was sent.
	ErrBadOption = backend.ErrBadOption
	// ErrOverloaded: the context ended before the attempt could even start.
	ErrOverloaded = backend.ErrOverloaded
)

// UnfitError is an ErrUnfit that says why, in a word that package backend lists.
// Use errors.As to reach it in the error of a Vote, NodeState, Finding or Event.
type UnfitError = backend.UnfitError

// QuorumError says what each node answered. Use errors.As to reach it.
type QuorumError = backend.QuorumError

// Vote is what one node answered.
type Vote = backend.Vote

// MayBeHeld tells whether, after err, some node may still hold our key: because
// a release was not confirmed by a quorum, or because a failed acquire is still
// being undone. Such a key goes with its TTL at the latest.
func MayBeHeld(err error) bool { return backend.MayBeHeld(err) }
