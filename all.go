package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
)

// Leases is a set of names, held as one: it lasts as long as every one of them,
// and is given back as a whole. There is one for each AcquireAll; it is safe for
// use by many goroutines.
type Leases struct {
	locker *Locker
	// ctx is the context of every member, too: whichever ends, ends all.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// members are sorted by name, and do not change once AcquireAll has returned.
	members []*Lease
	maxHold *time.Timer
}

// maxNames bounds a set: it is given back at once, not in turns, and the first
// name of a long list is kept from others while all the rest are taken.
const maxNames = 1024

// AcquireAll takes all of names, or none, waiting while others hold some of them.
// They may be given in any order, and more than once; 1,024 different ones are
// the most.
//
// One name is taken after the other, in the order of their bytes, and what is
// taken is kept and renewed while the next is waited for. So callers of AcquireAll
// never wait for each other in a circle, whatever names they want. Who holds one
// lease and waits for another by a second call is outside that order, and can.
//
// ctx and o.Wait bound the whole; with NoWait the first name that others hold
// ends it. o.MaxAttempts is for each name. o.MinValidity is left of every lease
// when AcquireAll returns, and o.MaxHold counts from then.
//
// On failure all that was taken is given back before AcquireAll returns. The
// error is a LeasesError that says which name it was; it is an ErrLost if one
// that was held already was lost while another was waited for. MayBeHeld tells
// whether a key of any of them may remain.
func (lk *Locker) AcquireAll(ctx context.Context, names []string, o *AcquireOptions) (*Leases, error) {
	requests, maxHold, err := lk.requestAll(names, o)
	if err != nil {
		return nil, err
	}
	for _, r := range requests {
		if err := lk.checkNested(ctx, r); err != nil {
			return nil, err
		}
	}
	s := &Leases{locker: lk}
	s.ctx, s.cancel = newHolding(ctx, lk, slices.Clone(names)...)
	failed := s.takeAll(ctx, requests)
	if failed == nil {
		failed = s.freshen(ctx, requests[0].MinValidity)
	}
	if failed == nil {
		s.hold(maxHold, requests[0].NoRenew)
		failed = s.givenUp(requests[len(requests)-1].Name, nil)
	}
	if failed == nil {
		return s, nil
	}
	// The release of one that was lost says so.
	failed = append(failed, each(s.members, func(l *Lease) error { return l.Release(ctx) })...)
	return nil, leasesError("acquire", failed)
}

// requestAll checks names and o and turns them into what a backend is asked,
// without repetitions and in order. Who waits for a name then holds only smaller
// ones, and if its holder waits as well, it is for a larger one: along a chain of
// waits the names only grow, and it cannot close (Havender, "Avoiding Deadlock in
// Multitasking Systems", 1968). To give all back and try again instead would need
// no order, but two callers could disturb each other for ever.
func (lk *Locker) requestAll(names []string, o *AcquireOptions) ([]backend.Request, time.Duration, error) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 || len(names) > maxNames {
		return nil, 0, badOption("%d names, not 1 to %d", len(names), maxNames)
	}
	requests := make([]backend.Request, len(names))
	var maxHold time.Duration
	for i, name := range names {
		var err error
		if requests[i], maxHold, err = lk.request(name, o, false); err != nil {
			return nil, 0, err
		}
	}
	return requests, maxHold, nil
}

// takeAll takes one after the other, until one fails. A set that is lost, or ended
// by Close, takes no more.
func (s *Leases) takeAll(ctx context.Context, requests []backend.Request) []NameError {
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	defer stop()
	begun := time.Now()
	for _, r := range requests {
		// It has to last while the others are waited for, and MaxHold is the set's.
		const maxHold = -1
		r.NoRenew = false
		if r.Wait > 0 {
			r.Wait -= time.Since(begun)
			r.NoWait = r.Wait <= 0
			r.Wait = max(r.Wait, 0)
		}
		member := &Lease{locker: s.locker, name: r.Name, ctx: s.ctx, cancel: s.cancel}
		l, err := s.locker.takeNew(wait, member, r, maxHold)
		if err == nil {
			s.members = append(s.members, l)
		}
		if failed := s.givenUp(r.Name, err); failed != nil && ctx.Err() == nil {
			return failed
		}
		if err != nil {
			return []NameError{{Name: r.Name, Err: err}}
		}
	}
	return nil
}

// errGivenUp is why a name was not waited for any longer, or is given back.
var errGivenUp = errors.New("given up, because one of the names was lost")

// givenUp is what failed for name, if a loss has ended the set, and nil otherwise.
// The wait for it was ended by us then: a Canceled that a backend makes of that,
// err, would pass for the caller's.
func (s *Leases) givenUp(name string, err error) []NameError {
	if !errors.Is(context.Cause(s.ctx), ErrLost) {
		return nil
	}
	return []NameError{{Name: name, Err: &QuorumError{
		Op: "acquire", Name: name, Reasons: []error{errGivenUp}, MayRemain: MayBeHeld(err),
	}}}
}

// freshen extends the leases that have less than minValidity left: those that
// were taken first are somewhere between two renewals.
func (s *Leases) freshen(ctx context.Context, minValidity time.Duration) []NameError {
	short := func(l *Lease) bool { return time.Until(l.Deadline()) < minValidity }
	var stale []*Lease
	for _, l := range s.members {
		if short(l) {
			stale = append(stale, l)
		}
	}
	return each(stale, func(l *Lease) error {
		if err := l.Extend(ctx); err != nil {
			return err
		}
		if short(l) {
			return &QuorumError{Op: "acquire", Name: l.name, Reasons: []error{
				fmt.Errorf("%w in time: too little of the TTL was left", ErrNoQuorum)}}
		}
		return nil
	})
}

// hold begins the life of the set.
func (s *Leases) hold(maxHold time.Duration, noRenew bool) {
	if noRenew {
		s.stopRenewal()
	}
	if maxHold > 0 {
		s.maxHold = time.AfterFunc(maxHold, s.reachMaxHold)
	}
	context.AfterFunc(s.ctx, s.ended)
}

func (s *Leases) reachMaxHold() {
	s.stopRenewal() // first, as for a single lease
	s.cancel(ErrMaxHold)
}

// ended runs when the context has. If one name was lost, the others are of no
// more use, but whoever worked under them may not have noticed yet: they are left
// to end with their TTL, unless Release comes first.
func (s *Leases) ended() {
	if s.maxHold != nil {
		s.maxHold.Stop()
	}
	if errors.Is(context.Cause(s.ctx), ErrLost) {
		s.stopRenewal()
	}
}

func (s *Leases) stopRenewal() {
	for _, l := range s.members {
		l.held.StopRenewal()
	}
}

// Names returns the names that are held, sorted and each once.
func (s *Leases) Names() []string {
	names := make([]string, len(s.members))
	for i, l := range s.members {
		names[i] = l.name
	}
	return names
}

// Context returns a context with the values of the one given to AcquireAll,
// which is cancelled when the first of the leases ends, before anybody else can
// hold its name. context.Cause tells why: ErrLost, ErrReleased, ErrMaxHold or
// ErrClosed. After ErrLost or ErrMaxHold none of them is renewed, and nothing is
// given back before Release: the other names are kept from others, for a TTL at
// most, until those who work under the set have stopped.
func (s *Leases) Context() context.Context { return s.ctx }

// Token returns the fencing token of name, or zero if the set does not have it.
// Every name has its own, and its resource has to be shown that one.
func (s *Leases) Token(name string) fence.Token {
	i, found := slices.BinarySearchFunc(s.members, name, func(l *Lease, name string) int {
		return cmp.Compare(l.name, name)
	})
	if !found {
		return 0
	}
	return s.members[i].Token()
}

// TokenByClock tells whether Lease.TokenByClock is true of any of them.
func (s *Leases) TokenByClock() bool {
	return slices.ContainsFunc(s.members, (*Lease).TokenByClock)
}

// Deadline returns the earliest end of validity: the holder must not act after
// it. It carries a monotonic reading and moves with the extensions.
func (s *Leases) Deadline() time.Time {
	earliest := s.members[0].Deadline()
	for _, l := range s.members[1:] {
		if d := l.Deadline(); d.Before(earliest) {
			earliest = d
		}
	}
	return earliest
}

// Extend prolongs all of them by their TTL, counted from now. It is needed only
// with NoRenew. It fails with ErrLost if one had ended or a quorum no longer has
// it, which ends the set; and with ErrNoQuorum if too few nodes answered for one:
// then all are still held until Deadline, and Extend may be tried again.
func (s *Leases) Extend(ctx context.Context) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return &QuorumError{Op: "extend", Reasons: []error{cause}}
	}
	return leasesError("extend", each(s.members, func(l *Lease) error { return l.Extend(ctx) }))
}

// Release gives all names back, side by side, and ends the context with
// ErrReleased. One that fails keeps no other from being given back: the error is
// a LeasesError that says which were lost before (ErrLost), and for which too few
// nodes confirmed (ErrNoQuorum, and MayBeHeld is true). As with a single lease, it
// works on a dead ctx too, in bounded time, and a repeated call gives the first
// result.
func (s *Leases) Release(ctx context.Context) error {
	return leasesError("release", each(s.members, func(l *Lease) error { return l.Release(ctx) }))
}

// each calls f for the given leases, side by side, and returns in their order
// what failed.
func each(leases []*Lease, f func(*Lease) error) []NameError {
	errs := make([]error, len(leases))
	var wg sync.WaitGroup
	for i, l := range leases {
		wg.Go(func() { errs[i] = f(l) })
	}
	wg.Wait()
	var failed []NameError
	for i, err := range errs {
		if err != nil {
			failed = append(failed, NameError{Name: leases[i].name, Err: err})
		}
	}
	return failed
}

// LeasesError says for which names of a set something was not done. errors.Is
// and errors.As look at each of them. Use errors.As to reach it.
type LeasesError struct {
	// Op is what was asked: "acquire", "extend" or "release".
	Op string
	// Failed has the names, and why. The others were extended, or released; if Op
	// is "acquire", all that were taken have been given back, and one name is here
	// twice if that failed as well.
	Failed []NameError
}

// NameError is what failed for one name.
type NameError struct {
	Name string
	Err  error
}

// leasesError returns nil if nothing failed.
func leasesError(op string, failed []NameError) error {
	if len(failed) == 0 {
		return nil
	}
	return &LeasesError{Op: op, Failed: failed}
}

// Error says the whole of it in one line.
func (e *LeasesError) Error() string {
	texts := make([]string, len(e.Failed))
	for i := range e.Failed {
		texts[i] = e.Failed[i].Error()
	}
	return "redlock: " + e.Op + " all: " + strings.Join(texts, "; ")
}

// Unwrap gives errors.Is and errors.As what failed for each name.
func (e *LeasesError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i := range e.Failed {
		errs[i] = &e.Failed[i]
	}
	return errs
}

// Error names the name, once.
func (e *NameError) Error() string {
	text := strings.TrimPrefix(e.Err.Error(), "redlock: ")
	var q *QuorumError
	if errors.As(e.Err, &q) && q.Name == e.Name {
		return text
	}
	return fmt.Sprintf("%q: %s", e.Name, text)
}

// Unwrap returns what failed.
func (e *NameError) Unwrap() error { return e.Err }
