package redlock

import "example.com/redlock/backend"

// Observer is told what happens in a Locker. It is called from whatever
// goroutine makes it happen, sometimes with many leases waiting behind it: it
// must not block and must not call the Locker.
type Observer func(Event)

// Event is something an operator may want to count.
type Event = backend.Event

// EventKind says what happened.
type EventKind = backend.EventKind

// The events; package backend describes each.
const (
	EventAcquired        = backend.EventAcquired
	EventAttemptLost     = backend.EventAttemptLost
	EventExtended        = backend.EventExtended
	EventExtendFailed    = backend.EventExtendFailed
	EventLost            = backend.EventLost
	EventReleased        = backend.EventReleased
	EventVanished        = backend.EventVanished
	EventNodeUp          = backend.EventNodeUp
	EventNodeDown        = backend.EventNodeDown
	EventNodeQuarantined = backend.EventNodeQuarantined
	EventNodeLifted      = backend.EventNodeLifted
	EventNodeRefused     = backend.EventNodeRefused
	EventClockMoved      = backend.EventClockMoved
	EventNodeAccepted    = backend.EventNodeAccepted
	EventSuspended       = backend.EventSuspended
)
