package fence

import (
	"errors"
	"fmt"
	"strconv"
)

var (
	// ErrStale: the gate has been opened with a token that goes before this
	// one. Stop the work: somebody else has the lock, or had it since. The
	// error is a *StaleError.
	ErrStale = errors.New("fence: the token is stale")
	// ErrNotOpen: the gate has not been opened with this token, or what it
	// remembered was lost since. Take a new lease and begin again from what
	// the resource says.
	ErrNotOpen = errors.New("fence: the gate was not opened with this token")
	// ErrBadToken: not a token that can have been given out.
	ErrBadToken = errors.New("fence: not a token")
)

// Claim is what the holder of a lease shows to a gate: its token, and whether
// it holds the lock together with others.
type Claim struct {
	Token  Token
	Shared bool
}

// String says, for example, "exclusive token 33".
func (c Claim) String() string {
	if c.Shared {
		return "shared token " + c.Token.String()
	}
	return "exclusive token " + c.Token.String()
}

// StaleError says which token was refused, and which one had been there.
type StaleError struct {
	Resource string // empty if the gate has no name for it
	Claim    Claim  // what was refused
	Seen     Claim  // what the gate had been opened with
}

func (e *StaleError) Error() string {
	of := ""
	if e.Resource != "" {
		of = fmt.Sprintf(" for %q", e.Resource)
	}
	return fmt.Sprintf("fence: %v is stale%s: the gate was opened with %v", e.Claim, of, e.Seen)
}

// Is makes errors.Is find ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Gate is what a gate remembers of one resource, and the decision that every
// gate makes from it. It is a plain value without a lock or a store. The
// packages below this one are gates that are ready to use; whoever writes
// another one keeps a Gate together with the data and changes both in one step.
//
// One resource is guarded by one lock: the tokens of two lock names say nothing
// about each other.
type Gate struct {
	Exclusive Token // the highest exclusive token it was opened with
	Shared    Token // the highest shared token it was opened with
}

// Open returns the gate as it is after c was admitted, or a *StaleError or
// ErrBadToken and the gate unchanged. A holder opens the gate before it reads
// anything: if its first operation were a write, an older holder could still
// write between what it read and what it writes. Opening again is allowed.
//
// A shared token is admitted if it is above every exclusive one; an exclusive
// token if none of the others, of either kind, is above it, and no shared one
// is equal to it.
func (g Gate) Open(c Claim) (Gate, error) {
	if !c.Token.Valid() {
		return g, fmt.Errorf("%w: %v", ErrBadToken, c)
	}
	if seen, stale := g.before(c); stale {
		return g, &StaleError{Claim: c, Seen: seen}
	}
	if c.Shared {
		g.Shared = max(g.Shared, c.Token)
	} else {
		g.Exclusive = c.Token
	}
	return g, nil
}

// Check tells whether c may act now: read, and write if it is exclusive. The
// error is a *StaleError if another claim was admitted since that goes before
// c, and ErrNotOpen if c was never admitted.
func (g Gate) Check(c Claim) error {
	if seen, stale := g.before(c); stale {
		return &StaleError{Claim: c, Seen: seen}
	}
	opened := g.Exclusive
	if c.Shared {
		opened = g.Shared
	}
	if c.Token > opened || c.Token == 0 {
		return fmt.Errorf("%w: %v", ErrNotOpen, c)
	}
	return nil
}

// before returns the claim, if any, that goes before c.
func (g Gate) before(c Claim) (seen Claim, stale bool) {
	switch {
	case c.Shared:
		return Claim{Token: g.Exclusive}, c.Token <= g.Exclusive
	case c.Token < g.Exclusive && g.Shared <= g.Exclusive:
		return Claim{Token: g.Exclusive}, true
	case c.Token < g.Exclusive || c.Token <= g.Shared:
		return Claim{Token: g.Shared, Shared: true}, true
	}
	return Claim{}, false
}

// Valid tells whether t can have been given out: it is neither zero nor above
// MaxToken.
func (t Token) Valid() bool { return t > 0 && t <= MaxToken }

// ParseToken reads a token as String writes it, and as `redlock run` hands it
// to its command in REDLOCK_FENCE: decimal digits and nothing else. The error
// is ErrBadToken.
func ParseToken(s string) (Token, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	t := Token(n)
	if err != nil || !t.Valid() || t.String() != s {
		return 0, fmt.Errorf("%w: %q", ErrBadToken, s)
	}
	return t, nil
}
