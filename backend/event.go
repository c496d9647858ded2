package backend

import (
	"time"

	"example.com/redlock/fence"
)

// EventKind says what happened.
type EventKind string

// The events.
const (
	// EventAcquired: a lease was taken; Took is the whole of Acquire.
	EventAcquired EventKind = "acquired"
	// EventAttemptLost: one attempt failed; Err says why. Acquire may go on.
	EventAttemptLost EventKind = "attempt lost"
	// EventExtended: a lease was extended by a quorum.
	EventExtended EventKind = "extended"
	// EventExtendFailed: an extension found no quorum. It is tried again
	// while the lease is valid.
	EventExtendFailed EventKind = "extend failed"
	// EventLost: a lease ended by itself; Err says why.
	EventLost EventKind = "lost"
	// EventReleased: a lease was given back; Err is what Release returned.
	EventReleased EventKind = "released"
	// EventVanished: a node lost a lease before its time.
	EventVanished EventKind = "vanished"
	// EventNodeUp and EventNodeDown: a node began or ceased to answer.
	EventNodeUp   EventKind = "node up"
	EventNodeDown EventKind = "node down"
	// EventNodeQuarantined: a node may have forgotten leases, because it
	// restarted, lost its data, was given other data or its clock moved, and does not vote for
	// another Took; Err is an ErrQuarantined that says more.
	EventNodeQuarantined EventKind = "node quarantined"
	// EventNodeLifted: the quarantine of a node is over, and it votes again. Err,
	// if any, tells that its counters now rest on its clock.
	EventNodeLifted EventKind = "node lifted"
	// EventNodeRefused: a node does not vote; Err says why: an ErrMismatch, an
	// *UnfitError, or that it has an outdated configuration.
	EventNodeRefused EventKind = "node refused"
	// EventClockMoved: the clock of a node moved by Took, at least, and the node
	// does not vote until it has been steady for the longest lease, or its
	// quarantine is over; Err is an ErrQuarantined that says so.
	EventClockMoved EventKind = "clock moved"
	// EventNodeAccepted: a node that had been refused votes again.
	EventNodeAccepted EventKind = "node accepted"
	// EventSuspended: the machine was suspended for Took.
	EventSuspended EventKind = "suspended"
)

// Event is something an operator may want to count. Fields that do not apply
// are zero.
type Event struct {
	Kind  EventKind
	Name  string
	Node  string
	Token fence.Token
	Took  time.Duration
	Err   error
}
