package core

import "time"

// LineTimes are the times of waiting in line.
type LineTimes struct {
	// Beat is how often a waiter says that it lives, and how often it looks whether
	// a name has become free without a push.
	Beat time.Duration
	// Life is for how long a node keeps a place without a heartbeat.
	Life time.Duration
	// Assign is for how long a node hands over a name.
	Assign time.Duration
	// AskAgain is how long after its first vote a waiter asks the nodes that have not
	// pushed, and again when all have answered.
	AskAgain time.Duration
	// Patience is for how long a waiter keeps votes that are too few. It has to be
	// longer than a node may be silent for: else two waiters can swap votes for ever.
	Patience time.Duration
	// Reach is for how long a waiter goes on that fewer than a quorum of nodes answer.
	Reach time.Duration
	// Enough is how much must be left of an assigned lease.
	Enough time.Duration
}

// DefaultLineTimes returns the times of the protocol, for nodes that are silent after
// timeout.
func DefaultLineTimes(timeout time.Duration) LineTimes {
	return LineTimes{
		Beat: time.Second, Life: 5 * time.Second, Assign: 2 * time.Second, AskAgain: 10 * time.Millisecond,
		Patience: max(200*time.Millisecond, timeout+timeout/2), Reach: 2 * time.Second, Enough: 200 * time.Millisecond,
	}
}

// LineEventKind says what happened to a waiter at one node.
type LineEventKind uint8

// The events of a waiter.
const (
	// Left: what the waiter asked was written, at LineEvent.Sent.
	Left LineEventKind = 1 + iota
	// Answered: the node answered what was asked. Granted tells that it gave its vote.
	Answered
	// Unheard: it did not answer in time, or could not.
	Unheard
	// Pushed: the node handed the name to the waiter.
	Pushed
	// LiftedTo: the node lifted its counter to the token, and NotLifted: it did not.
	LiftedTo
	NotLifted
	// Returned: the node has answered what gave back a vote, or was silent.
	Returned
	// Lapsed: what the node granted may have ended.
	Lapsed
	// Stirred: the node is to be asked at once. It can be heard again, or has pushed
	// what has to be asked for once more.
	Stirred
	// Distrusted: the node handed the name to the waiter, but has no vote.
	Distrusted
)

// LineEvent is what happened at one node.
type LineEvent struct {
	Kind LineEventKind
	Node int
	// Attempt (all but Left, Returned, Lapsed and Stirred) is the attempt that it is
	// about.
	Attempt int
	// Beat is the number of what was asked, or of the last heartbeat that the node
	// had seen when it pushed.
	Beat uint64
	// Sent (Left) is when.
	Sent Instant
	// Granted (Answered) tells that the node gave its vote, and Token is the number
	// that came with it (Answered, Pushed). Lease (Pushed) is for how long.
	Granted bool
	Token   uint64
	Lease   time.Duration
	// Ticket (Answered) is the waiter's ticket at the node.
	Ticket uint64
	// Holder (Answered, not Granted) says who has the name there; Older that it
	// waited with a smaller ticket; Remaining how long it would last.
	Holder    string
	Older     bool
	Remaining time.Duration
	// Again (Answered, not Granted) is when to ask the node again, if that is before
	// the next heartbeat: its holder hands nothing over.
	Again Instant
	// Mine (Answered, not Granted) tells that the holder is a dead attempt of the
	// waiter's own, Dead.
	Mine bool
	Dead int
}

// LineEffectKind says what a waiter wants done.
type LineEffectKind uint8

// The effects of a waiter.
const (
	// Ask Node for its vote, or a place, with heartbeat Beat.
	Ask LineEffectKind = 1 + iota
	// GiveBack what Node gave to Attempt; the waiter goes on there.
	GiveBack
	// LiftTo: lift the counter of Node to Token, given that it stored Stored.
	LiftTo
	// Leave the line of Node, which has no vote, and what it gave to Attempt.
	Leave
)

// LineEffect is what a waiter wants done at one node.
type LineEffect struct {
	Kind          LineEffectKind
	Node          int
	Attempt       int // GiveBack, Leave: the dead one
	Beat          uint64
	Rest          time.Duration
	Stored, Token uint64
}
