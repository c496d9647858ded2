package redlock

import (
	"fmt"
	"log/slog"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/redlock/backend"
)

// Options configures a Locker. The zero value, or nil, means every default.
type Options struct {
	// Namespace is the prefix of all keys. Default "redlock".
	Namespace string
	// Cluster names the set of nodes. By default it is derived from their
	// addresses, so that clients with different lists notice each other. Set it
	// where clients reach the same nodes under different addresses.
	Cluster string
	// PlainKeys uses the lock's name itself as the key, as Redlock clients of
	// other languages do.
	PlainKeys bool
	// TTL is how long a lease outlives a holder that died, where AcquireOptions
	// does not say. Default 10 s.
	TTL time.Duration
	// MaxTTL is the longest TTL any client of these nodes may use; all clients
	// must agree. 2 s to 24 h; default 30 s.
	MaxTTL time.Duration
	// Quorum is how many nodes must agree. Default, and least, the majority. A
	// wider quorum of q tolerates that 2q - N - 1 nodes forget.
	Quorum int
	// NodeTimeout is how long to wait for one node's answer. Default TTL/200,
	// at least 20 ms and at most 250 ms; never above TTL/4.
	NodeTimeout time.Duration
	// ConnectWait is how long Acquire goes on while no quorum answers. Default
	// 10 s.
	ConnectWait time.Duration
	// DriftRate is how much faster a node's clock may run than ours, as a
	// fraction. It comes off the validity of every lease. Default 0.01.
	DriftRate float64
	// DriftFloor comes off the validity too. Default 2 ms, as the Redis
	// documentation has it for the granularity of expiry.
	DriftFloor time.Duration
	// CounterOnly keeps a node that has lost its token counters out for good, if
	// too few other nodes vote to tell it where to go on: else it begins at its
	// clock, and Lease.TokenByClock says so. All clients of the nodes should have
	// it, or one that does not will let the node in.
	CounterOnly bool
	// Logger gets what an operator should know. Default slog.Default().
	Logger *slog.Logger
	// Observer is told every event. Default none.
	Observer Observer
}

// Mode says who may hold a name together.
type Mode = backend.Mode

// The modes.
const (
	Exclusive = backend.Exclusive
	Shared    = backend.Shared
)

// NoWait, as AcquireOptions.Wait, fails with ErrHeld instead of waiting for a
// holder.
const NoWait time.Duration = -1

// AcquireOptions says how one lease is taken. The zero value, or nil, means
// every default.
type AcquireOptions struct {
	// TTL of this lease. Whole milliseconds, 20 ms to Options.MaxTTL. Default
	// Options.TTL.
	TTL time.Duration
	// Mode is Exclusive or Shared.
	Mode Mode
	// Owner labels the lease for people: at most 128 bytes of printable UTF-8.
	Owner string
	// Wait bounds the wait for other holders. 0 means what the call says:
	// Acquire waits until ctx ends, TryAcquire does not. NoWait, or a duration.
	Wait time.Duration
	// MaxAttempts bounds the tries. 0 for no bound.
	MaxAttempts int
	// MaxHold bounds the whole life of the lease. When it is over the lease's
	// context ends with ErrMaxHold and renewal stops; nothing is released under
	// a running body. Default 24 h, negative for no bound.
	MaxHold time.Duration
	// NoRenew leaves the lease to end after its TTL unless Extend is called.
	NoRenew bool
	// MinValidity is how much of the TTL must be left when Acquire returns. Default
	// TTL/2, and less for a lease that was handed to a waiter: 200 ms, and it is extended
	// within 100 ms after Acquire has returned.
	MinValidity time.Duration
	// OnWait is called while waiting: before each pause, and in line about once a
	// second and when the position changes. It must not block.
	OnWait func(Wait)
}

// Wait is what stands in the way of a waiting Acquire.
type Wait = backend.Wait

const (
	defaultTTL     = 10 * time.Second
	defaultMaxHold = 24 * time.Hour
	maxOwnerBytes  = 128
)

// badOption returns an ErrBadOption with its explanation.
func badOption(format string, args ...any) error {
	return fmt.Errorf("redlock: %w: %s", ErrBadOption, fmt.Sprintf(format, args...))
}

// checkTTL reports whether ttl can be the TTL of a lease under limits.
func checkTTL(ttl time.Duration, limits backend.Limits) error {
	switch {
	case ttl < limits.MinTTL:
		return badOption("TTL %v is below %v", ttl, limits.MinTTL)
	case ttl > limits.MaxTTL:
		return badOption("TTL %v is above the maximum of %v", ttl, limits.MaxTTL)
	case ttl%time.Millisecond != 0:
		return badOption("TTL %v is not a whole number of milliseconds", ttl)
	}
	return nil
}

func checkOwner(owner string) error {
	if len(owner) > maxOwnerBytes {
		return badOption("owner label of %d bytes is longer than %d", len(owner), maxOwnerBytes)
	}
	if !utf8.ValidString(owner) {
		return badOption("owner label %q is not UTF-8", owner)
	}
	for _, r := range owner {
		if !unicode.IsPrint(r) {
			return badOption("owner label %q has an unprintable character", owner)
		}
	}
	return nil
}

// request checks o and turns it into what a backend is asked. try is what the
// call means by a Wait of zero.
func (lk *Locker) request(name string, o *AcquireOptions, try bool) (backend.Request, time.Duration, error) {
	if o == nil {
		o = &AcquireOptions{}
	}
	r := backend.Request{
		Name: name, Mode: o.Mode, TTL: o.TTL, MinValidity: o.MinValidity, Owner: o.Owner,
		MaxAttempts: o.MaxAttempts, NoRenew: o.NoRenew, OnWait: o.OnWait,
		NoWait: o.Wait == NoWait || (o.Wait == 0 && try), Wait: max(o.Wait, 0),
	}
	if r.TTL == 0 {
		r.TTL = lk.ttl
	}
	maxHold := o.MaxHold
	if maxHold == 0 {
		maxHold = defaultMaxHold
	}
	return r, maxHold, lk.checkRequest(r, o)
}

func (lk *Locker) checkRequest(r backend.Request, o *AcquireOptions) error {
	if err := lk.backend.CheckName(r.Name); err != nil {
		return err
	}
	if err := checkTTL(r.TTL, lk.backend.Limits()); err != nil {
		return err
	}
	if err := checkOwner(r.Owner); err != nil {
		return err
	}
	switch {
	case r.Mode != Exclusive && r.Mode != Shared:
		return badOption("mode %d", r.Mode)
	case o.Wait < 0 && o.Wait != NoWait:
		return badOption("wait %v is negative", o.Wait)
	case o.MaxAttempts < 0:
		return badOption("%d attempts", o.MaxAttempts)
	case r.MinValidity < 0 || r.MinValidity >= r.TTL:
		return badOption("min validity %v is not between 0 and the TTL of %v", r.MinValidity, r.TTL)
	}
	return nil
}
