// Package backend is the contract between a redlock.Locker and the
// coordination service that keeps its locks: a quorum of Redis masters, a
// ZooKeeper ensemble, an etcd cluster. Users of locks need package redlock;
// this package is for those who bring a service of their own. Package
// backendtest is the suite that every implementation must pass.
package backend

import (
	"context"
	"time"

	"example.com/redlock/fence"
)

// Backend takes, keeps and gives back leases. Its methods may be called from
// any goroutine.
type Backend interface {
	// Acquire takes the name in r. It returns a lease and a nil error, or a
	// nil lease and an error, never both nil. ctx bounds the wait only: once a
	// lease is returned, the end of ctx does not touch it. If Acquire fails,
	// whatever the attempt may have left behind is undone in the background,
	// in bounded time, also when ctx is dead.
	Acquire(ctx context.Context, r Request) (Lease, error)
	// Resume takes over the lease that a handle stands for, under a new token.
	// It uses r.TTL, r.MinValidity, r.Owner, r.NoRenew and r.Lost; the name is
	// the handle's. A handle works once: a second Resume, or one that comes
	// after the lease has ended, gets ErrLost.
	Resume(ctx context.Context, handle string, r Request) (Lease, error)
	// ReleaseHandle gives back the lease that a handle stands for, also one that
	// was broken, without taking it over. ErrLost if it had ended.
	ReleaseHandle(ctx context.Context, handle string) error
	// Inspect says who holds a name, as far as a quorum can tell.
	Inspect(ctx context.Context, name string) (Status, error)
	// List says who has which of the names that match pattern, sorted by name:
	// what Inspect says of each, without the names that nobody has. pattern is
	// a glob on bytes: * for any number of them, ? for one, [abc] [a-z] [^a-z]
	// for one of a class, a backslash before what is to stand for itself; empty,
	// it matches all. One that cannot be read is an ErrBadOption. What was found
	// comes with every other error, too.
	List(ctx context.Context, pattern string) ([]Status, error)
	// Break refuses the holder of a name further extensions, so that the name
	// is free by the holder's deadline. With now it frees the name at once: the
	// holder may still act.
	Break(ctx context.Context, name string, now bool) error
	// Nodes asks every node who it is and whether it accepts our configuration.
	// It changes nothing.
	Nodes(ctx context.Context) []NodeState
	// Doctor puts every node to every check: what is wrong, and what to do. It
	// changes nothing, and takes a second or two. The findings come in the order
	// of the nodes, then those about all of them; they are complete, what is well
	// included, but for checks whose outcome nothing tells, as of a node that does
	// not answer. The error is an ErrNoQuorum if nothing could be locked, as the
	// nodes are; the findings come with it.
	Doctor(ctx context.Context) ([]Finding, error)
	// Init declares new nodes: blank ones take our configuration and vote. A
	// blank node among others that are in use is put in quarantine instead.
	Init(ctx context.Context, o InitOptions) []NodeState
	// CheckName reports whether a name can be locked, as an ErrBadOption.
	CheckName(name string) error
	// Limits says which leases can be asked for.
	Limits() Limits
	// Close ends renewals and waits, up to ctx, for the work in the background.
	// Leases that were not released are left to end by themselves.
	Close(ctx context.Context) error
}

// Mode says who may hold a name together.
type Mode uint8

// The modes.
const (
	Exclusive Mode = iota
	Shared
)

// Request asks for a lease.
type Request struct {
	Name string
	Mode Mode
	// TTL is how long the lease outlives its holder. Whole milliseconds.
	TTL time.Duration
	// MinValidity is how much of the TTL must be left for a lease to be worth
	// returning. 0 for half of it; and a lease that was handed to a waiter is then
	// returned with as little as it was handed over with, while it is being extended.
	MinValidity time.Duration
	// Owner labels the lease for people.
	Owner string
	// NoWait fails with ErrHeld instead of waiting for a holder.
	NoWait bool
	// Wait bounds the wait for holders, 0 for no bound but ctx. When it is over
	// the error is ErrHeld or ErrNoQuorum, whichever stood in the way.
	Wait time.Duration
	// MaxAttempts bounds the tries, 0 for no bound.
	MaxAttempts int
	// NoRenew leaves the lease to end after its TTL unless Extend is called.
	NoRenew bool
	// Lost is called once, when the lease ends by itself: with an ErrLost that
	// says why. Not after Release or Handle. It must not block.
	Lost func(error)
	// OnWait is called while waiting: before each pause, and in line about once a
	// second and when the position changes. It must not block.
	OnWait func(Wait)
}

// Wait is what stands in the way of a waiting Acquire.
type Wait struct {
	// Attempts so far.
	Attempts int
	// Position is how many stand in line before the caller, 0 if it is next, -1 while
	// it does not stand in line.
	Position int
	// Owner is the owner label of the holder, if known.
	Owner string
	// Remaining is how long the holder's lease would last without renewal, 0
	// if unknown.
	Remaining time.Duration
	// Quarantined are the nodes that do not vote, because they may have forgotten
	// leases.
	Quarantined []string
	// Err is what the last attempt met, node by node if it is a *QuorumError.
	Err error
}

// Lease is one name, held. It keeps itself alive until Release, Handle,
// StopRenewal or its loss.
type Lease interface {
	Token() fence.Token
	// TokenByClock tells that the order of the token, among those of before some
	// loss, rests on the clock of a node that had lost its counters.
	TokenByClock() bool
	// Deadline is the end of the validity, as a time with a monotonic reading.
	// It moves with each extension.
	Deadline() time.Time
	// Extend prolongs the lease now. A lease that is lost stays lost.
	Extend(ctx context.Context) error
	// StopRenewal ends the renewal for good: the lease ends by its deadline,
	// which only Extend moves from then on.
	StopRenewal()
	// Release gives the name back. It works on a dead ctx too, in bounded time.
	// A second call returns what the first returned.
	Release(ctx context.Context) error
	// Handle moves the lease out of this process: renewal has ended when it
	// returns, and the string is good for one Resume.
	Handle() (string, error)
}

// Limits bounds what can be asked for.
type Limits struct {
	MinTTL, MaxTTL time.Duration
}

// Status says who holds a name.
type Status struct {
	Name string
	// Held tells whether one holder has a quorum.
	Held bool
	// Partial tells that nobody has a quorum, but somebody has some node: an
	// attempt under way, or what was left of one; or a holder, if it is nodes
	// that gave no answer which complete its quorum. What follows is then about
	// whoever has most nodes.
	Partial bool
	// Foreign tells that the holder is no client of ours.
	Foreign bool
	// Broken tells that the lease cannot be extended any more.
	Broken bool
	Owner  string
	// Token is the holder's fencing token, or 0 if it cannot be told: an
	// agreed token that only some nodes store, or a foreign holder.
	Token fence.Token
	// Since is about when the lease was taken, or zero if that cannot be told.
	// No node stores it. It is an estimate from the token, which is made from
	// the wall clock of whoever took the lease, but is larger if another clock
	// was ahead; Resume takes anew.
	Since time.Time
	// Remaining is the time until a quorum of nodes would be free again if
	// nobody extended, -1 if they never would.
	Remaining time.Duration
	// NoTTL tells that the key never expires on some node, which is no doing of
	// ours: Votes say where.
	NoTTL bool
	// Line are the first who wait for the name, in order; Waiting is how many do. Only
	// Inspect tells.
	Line    []Waiter
	Waiting int
	// Votes says what each node answered.
	Votes []Vote
}

// Waiter is somebody who waits in line.
type Waiter struct {
	// Owner is the owner label.
	Owner string
	Mode  Mode
	// Since is about when the wait began, or zero if that cannot be told: an estimate,
	// as Status.Since is.
	Since time.Time
}

// InitOptions says how nodes are declared.
type InitOptions struct {
	// Force makes nodes in quarantine vote, too: whatever they may have forgotten
	// does not matter, because nobody holds anything.
	Force bool
	// Durable marks the nodes as ones that forget nothing when they restart, so
	// that they vote at once; Forgetful takes that back. A node is marked if it
	// appends every write to a file and syncs it before it answers (appendonly yes,
	// appendfsync always), and looked at again whenever it has restarted. That its
	// disk tells the truth, and that nobody puts an older copy back, the operator
	// answers for.
	Durable, Forgetful bool
}

// NodeState is what one node of a service says of itself.
type NodeState struct {
	// Node is the node's address, without credentials.
	Node string
	// Standing is "ok"; "new" for a node that is, or until now was, blank;
	// "durable" for one that restarted, is marked as one that forgets nothing, and
	// votes once a client that may look whether it is so has used it;
	// "quarantined" for one that may have forgotten leases, and does not vote for
	// as long as Left says; "fenced" for one that does not vote until a change of
	// configuration has come to its end; "outdated" for one that such a change has
	// passed by; "mismatch", "unfit" or "unreachable".
	Standing string
	Left     time.Duration
	// Durable tells that a restart costs the node no quarantine.
	Durable bool
	// HasRecords tells that the node had been declared before.
	HasRecords bool
	// ByClock tells that the order of tokens rests on the node's clock: when it
	// had lost its counters, too few others could tell theirs.
	ByClock bool
	// RunID identifies the server's process, and Version its software.
	RunID, Version string
	// Err says more about a node that does not vote.
	Err error
}
