// Package node is the language spoken between a client and one node: the
// operations of a call, the answers to them, the configuration both sides
// must share, and the keys that a lock occupies. It decides nothing.
//
// The Lua scripts in redisnode/scripts and the model in internal/nodemodel
// are two implementations of what this language means.
package node

// ProtocolVersion is the version of the language. It is part of Conf, so that
// clients of different versions notice each other.
const ProtocolVersion = 1

// MaxExact is the first number that a Lua number can no longer count up from:
// no number of the protocol reaches it.
const MaxExact = 1 << 53

// Kind says what an operation does.
type Kind uint8

// The operations of design section 5.
const (
	// Acquire takes the lease for ID if nobody has it. Needs the guard.
	Acquire Kind = 1 + iota
	// Extend raises the remaining time of a lease that ID owns. Never creates,
	// never shortens. Needs the configuration.
	Extend
	// Join stores a lease that ID already holds on a quorum of other nodes,
	// under the token Token. Needs the guard.
	Join
	// Raise lifts the counter to Token if ID owns the lease with stored number
	// Stored. Needs the configuration.
	Raise
	// Replace hands a lease that ID owns to NewID, with a new number. Needs
	// the guard.
	Replace
	// Release deletes a lease that ID owns, broken or not, and takes its waiter
	// (Place) out of the line; or, with NewID, gives the lease back, and the waiter
	// goes on waiting as NewID. If that frees the name, the node hands it to whoever
	// is next. Always runs; without the guard nothing is handed over, or entered.
	Release
	// Break marks the lease of ID, somebody else's, so that it can no longer be
	// extended; with Now it deletes it. It names the lease: one that arrives late
	// must not hit the next holder. Always runs.
	Break
	// Inspect reads a lease. Always runs.
	Inspect
	// Wait takes the lease for ID if it is free for it, else gives its waiter a
	// place in the line, or keeps the one that it has. Needs the guard.
	Wait
)

// Guarded reports whether k can give or prolong a lease, and is therefore refused
// by a node that has another configuration than the caller.
func (k Kind) Guarded() bool { return k.Votes() || k == Extend || k == Raise }

// Votes reports whether k stores a lease. A node in quarantine does not do that,
// nor does one that k reaches too late: its caller may have given the lease up,
// and undone it.
func (k Kind) Votes() bool { return k == Acquire || k == Wait || k == Join || k == Replace }

// InQuarantine reports whether a node in quarantine does what k asks for: a lease
// that it still has may be kept up. A blank one has none, and no configuration.
func (k Kind) InQuarantine(blank bool) bool { return !k.Guarded() || !k.Votes() && !blank }

// Counts reports whether k moves the token counter of its shard.
func (k Kind) Counts() bool {
	return k == Acquire || k == Wait || k == Join || k == Raise || k == Replace
}

// Mode says who may hold a name together.
type Mode uint8

// The modes.
const (
	// Exclusive: nobody else.
	Exclusive Mode = iota
	// Shared: others that hold it shared.
	Shared
)

// Place is a waiter's place in the line of a name.
type Place struct {
	// Waiter is the id of the waiter, which stays the same over its attempts: 32
	// lower-case hexadecimal digits.
	Waiter string
	// Client (all but a Release that only leaves) is the process that the waiter belongs
	// to, as its channel has it: 32 such digits.
	Client string
	// Ticket is what the line is ordered by. Zero: the node is to draw one.
	Ticket uint64
	// Beat numbers the heartbeats of the waiter at the node, from 1.
	Beat uint64
}

// Op is one operation on one lock name. Fields that a kind does not name in
// its description are zero.
type Op struct {
	Kind Kind
	// Name is the lock's name, any bytes.
	Name string
	// ID is the attempt id of the caller, or of the lease to break: 32 lower-case
	// hexadecimal digits.
	ID string
	// NewID (Replace, Release that gives back) is the fresh attempt id.
	NewID string
	// Mode (Acquire, Wait, Join, Release that gives back) is how the name is to be
	// held.
	Mode Mode
	// Place (Wait, Release of what stood in line) is the waiter's place.
	Place Place
	// Rest (Release that gives back) is for how many milliseconds the name is not
	// to be handed over: somebody holds it on the other nodes, and may join.
	Rest int64
	// TTL (Acquire, Wait, Extend, Join, Replace) in milliseconds, at least 1.
	TTL int64
	// Proposal (Acquire, Wait, Replace, Release) is the number the caller proposes;
	// the node answers with a larger one if it has given that one out already.
	Proposal uint64
	// Stored (Raise) is the number the node answered the acquire with.
	Stored uint64
	// Token (Join, Raise) is the token of the lease.
	Token uint64
	// NotAfter (Acquire, Wait, Join, Replace) is the node's own time, in microseconds,
	// after which the caller has given the operation up. Zero: no limit.
	NotAfter int64
	// Seen (Acquire, Wait, Join, Raise, Replace) is the highest number that the caller
	// knows the node to have given out in the shard.
	Seen uint64
	// Owner (Acquire, Wait, Join, Replace, Release that gives back) is the owner
	// label, may be empty.
	Owner string
	// Now (Break) frees the name at once.
	Now bool
}

// Call is a batch of operations that one script run carries out, in order.
type Call struct {
	// Keys says where the locks live on the node.
	Keys Keyspace
	// Guard is the string the node must show before it grants anything. A
	// quarantine with the same configuration will do for Extend and Raise.
	Guard string
	// MaxTTL in milliseconds: a lease of ours with more than this and
	// ClockSlack left is cut to it, because the node's clock went back.
	MaxTTL int64
	// Assign is for how long, in milliseconds, a name is handed to a waiter, who
	// extends it as soon as it knows. Life is for how long a place in the line lasts
	// without a heartbeat.
	Assign, Life int64
	Ops          []Op
}

// ClockSlack is how far, in milliseconds, a proposal may lead the node's
// clock and a remaining time may exceed MaxTTL before the node cuts it.
const ClockSlack = 250

// Code says how a node answered an operation. The characters are those that
// the scripts send.
type Code byte

// The answers.
const (
	// Granted: Acquire or Replace succeeded; Answer.Token is the number.
	Granted Code = 'G'
	// Done: any other operation succeeded.
	Done Code = 'Y'
	// Held: another attempt of ours has the name.
	Held Code = 'H'
	// Broken: the name is blocked by a broken lease until its deadline.
	Broken Code = 'B'
	// Waiting: nobody has the name on this node, but it is not the caller's turn.
	Waiting Code = 'Q'
	// Foreign: the key holds a string that is not ours.
	Foreign Code = 'F'
	// WrongType: the key holds something that is no string.
	WrongType Code = 'W'
	// Absent: no lease is stored.
	Absent Code = 'A'
	// Stale: the operation came after NotAfter.
	Stale Code = 'S'
	// NoGuard: the node does not show the guard that the call expects, or not as
	// the process that it names.
	NoGuard Code = 'N'
	// WentBack: the counter is behind what the caller has Seen of it, so the node's
	// data is older than it was. Nothing was done.
	WentBack Code = 'T'
	// Failed: the node could not carry it out; Answer.Err says why.
	Failed Code = 'E'
)

// String returns the answer's name.
func (c Code) String() string {
	switch c {
	case Granted:
		return "granted"
	case Done:
		return "done"
	case Held:
		return "held"
	case Broken:
		return "broken"
	case Waiting:
		return "waiting"
	case Foreign:
		return "foreign"
	case WrongType:
		return "wrong type"
	case Absent:
		return "absent"
	case Stale:
		return "stale"
	case NoGuard:
		return "no guard"
	case WentBack:
		return "went back"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// Answer is a node's answer to one operation.
type Answer struct {
	Code Code
	// Token is the number granted (Granted), or the highest number that the
	// node has given out in the shard (Held, Broken, Foreign to an operation
	// that Counts), or the stored number (Held, Broken to any other).
	Token uint64
	// ByClock (Granted) tells that the counter that Token comes from began, after
	// a loss, at the node's clock.
	ByClock bool
	// Remaining is the holder's remaining time in milliseconds (Held, Broken,
	// Foreign); -1 if the key never expires.
	Remaining int64
	// Holder identifies the holder: its attempt id, or for a foreign value the
	// SHA-1 that the node computed of it.
	Holder string
	// Owner is the holder's owner label.
	Owner string
	// HolderTicket (Held) is the ticket that the holder waited with; 0 if it did
	// not, or that is not known any more.
	HolderTicket uint64
	// Ticket (any answer to a Wait of a waiter that stands in line, or did until it
	// was granted the name now) is its ticket at this node, and Ahead how many stand
	// before it.
	Ticket uint64
	Ahead  int
	// Readers (Held) is how many share the name; 0 if one has it alone.
	Readers int
	// Err is the node's own text (Failed). Denied tells that it means that the
	// credentials do not allow the operation.
	Err    string
	Denied bool
}

// Reply is a node's reply to a Call.
type Reply struct {
	// Time is the node's clock in microseconds since 1970, read once.
	Time int64
	// Guard is what the node shows; empty if nothing is stored. It is read
	// only by calls with a guarded operation.
	Guard string
	// Answers has one entry per operation, in order.
	Answers []Answer
}

// Push is what a node publishes when it hands a name to a waiter: as good as a
// grant.
type Push struct {
	Client, Waiter string
	Name           string
	// ID is the attempt that the lease was given to, Token its number, and ByClock
	// whether that rests on the node's clock.
	ID      string
	Token   uint64
	ByClock bool
	// Beat is the last heartbeat of the waiter that the node had seen: the lease
	// was given after that was sent, for Lease milliseconds.
	Beat  uint64
	Lease int64
}

// SharedHolder is the Answer.Holder of a name that is held shared.
const SharedHolder = "~shared"
