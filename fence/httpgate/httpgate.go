// Package httpgate is a gate in front of an http.Handler, and the client's side
// of it: requests carry the fencing token of the lock that they are made under.
//
// It protects what the handler reads and changes while it serves a request:
// requests of a late holder of the lock get 412 Precondition Failed, those that
// are to be done at all are done one after the other (readers beside each
// other), and a newer holder is served only once the request of an older one is
// over. It does not protect what can be changed around the handler, nor what
// the handler goes on doing after it has returned. A handler that fails half-way
// leaves what it had done by then. A holder of several locks opens all gates,
// in a fixed order, before it reads from the first.
//
// Tokens are kept in memory unless Options.Store says otherwise: after a restart
// the first request of each resource is believed, and two processes that serve
// the same resource do not know of each other. A handler that keeps its data in
// a database had better check the token there, in the same transaction
// (package sqlgate); ClaimOf gives it.
//
// The headers, for clients in other languages:
//
//	Redlock-Key    the name of the lock; bytes other than visible ASCII, and %, as %XX
//	Redlock-Fence  the fencing token, in decimal digits
//	Redlock-Mode   exclusive, the default, or shared
//
// A response of 412 has the two latter ones as well: what the gate had been
// opened with.
package httpgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"example.com/redlock/fence"
)

// Store remembers for each resource what it was opened with, and admits
// requests to it. Memory is one; one that survives a restart can stand on a
// database.
type Store interface {
	// Enter opens resource for claim, waits until those who are inside and may
	// not be there together with claim have left, and returns. Until leave is
	// called, nobody enters who may not be there together with claim: an
	// exclusive one is alone. The error is fence.ErrStale if resource was opened
	// with a token that goes before this one, also while Enter waited; or
	// ctx.Err(). Enter is called from any goroutine.
	//
	// In a Store that is to survive a restart the opening must be durable before
	// Enter returns. In a transaction that is committed only when leave is called
	// it is lost if the process dies meanwhile, and the handler's doings stay: a
	// late holder would be let in to them.
	Enter(ctx context.Context, resource string, claim fence.Claim) (leave func(), err error)
}

// Options are the choices of New. Nil means all defaults.
type Options struct {
	Store Store // default: a new Memory
	// MissingStatus answers requests without a token: 428 Precondition Required
	// by default, or 400.
	MissingStatus int
	// OnRefuse is told of each request that is not let through, and why: for
	// logs and metrics.
	OnRefuse func(r *http.Request, status int, err error)
}

// Gate lets requests with good tokens through.
type Gate struct {
	name func(*http.Request) string
	o    Options
}

// New returns a gate. name tells which lock guards what a request is about; a
// request that names another one, or for which name returns "", is refused. So a
// client cannot get in with the token of some other lock. One gate, or one Store,
// must be in front of all handlers of a resource, those that only read included.
func New(name func(*http.Request) string, o *Options) (*Gate, error) {
	g := &Gate{name: name}
	if o != nil {
		g.o = *o
	}
	if g.o.Store == nil {
		g.o.Store = new(Memory)
	}
	switch g.o.MissingStatus {
	case 0:
		g.o.MissingStatus = http.StatusPreconditionRequired
	case http.StatusPreconditionRequired, http.StatusBadRequest:
	default:
		return nil, fmt.Errorf("httpgate: MissingStatus is %d, not 428 or 400", g.o.MissingStatus)
	}
	if name == nil {
		return nil, errors.New("httpgate: no function that names the lock of a request")
	}
	return g, nil
}

// Handler returns next behind the gate. Every request opens it, those that only
// read included: the resource can be read in no other way. The answer to others
// than those let through is 412 if the token is stale, 428 (see Options) if there
// is none, 400 if it is malformed or of another lock, 403 if the token is shared
// and the method is none that only reads, 500 if the store fails.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := g.name(r) // once: what is checked is what is entered
		claim, status, err := g.claim(r, name)
		if err != nil {
			g.refuse(w, r, status, err)
			return
		}
		leave, err := g.o.Store.Enter(r.Context(), name, claim)
		if err != nil {
			status = http.StatusInternalServerError
			if stale, ok := errors.AsType[*fence.StaleError](err); ok {
				setClaim(w.Header(), stale.Seen)
				stale.Resource = name
			}
			if errors.Is(err, fence.ErrStale) {
				status = http.StatusPreconditionFailed
			}
			g.refuse(w, r, status, err)
			return
		}
		defer leave()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), claimKey{}, claim)))
	})
}

// claim reads what r shows, or says with which status it is refused. want is the
// lock that guards what r is about.
func (g *Gate) claim(r *http.Request, want string) (c fence.Claim, status int, err error) {
	key, err1 := single(r.Header, KeyHeader)
	token, err2 := single(r.Header, FenceHeader)
	mode, err3 := single(r.Header, ModeHeader)
	if err := errors.Join(err1, err2, err3); err != nil {
		return c, http.StatusBadRequest, err
	}
	if key == "" || token == "" {
		return c, g.o.MissingStatus, fmt.Errorf("httpgate: a request needs the headers %s and %s", KeyHeader, FenceHeader)
	}
	if got, err := decodeName(key); err != nil || got != want || want == "" {
		return c, http.StatusBadRequest, fmt.Errorf("httpgate: %s is %q, but what the request is about is guarded by %q",
			KeyHeader, key, encodeName(want))
	}
	if c.Token, err = fence.ParseToken(token); err != nil {
		return c, http.StatusBadRequest, err
	}
	switch mode {
	case "", modeExclusive:
	case modeShared:
		c.Shared = true
	default:
		return c, http.StatusBadRequest, fmt.Errorf("httpgate: %s is %q, not %s or %s", ModeHeader, mode, modeExclusive, modeShared)
	}
	if c.Shared && !onlyReads(r.Method) {
		return c, http.StatusForbidden, fmt.Errorf("httpgate: %s with a shared token, which may only read", r.Method)
	}
	return c, 0, nil
}

func onlyReads(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if g.o.OnRefuse != nil {
		g.o.OnRefuse(r, status, err)
	}
	text := err.Error()
	if status >= http.StatusInternalServerError {
		text = "httpgate: the tokens cannot be looked up" // the store's own words are no business of clients
	}
	http.Error(w, text, status)
}

type claimKey struct{}

// ClaimOf returns what a request showed to the gate that let it through. A
// handler passes it on to a gate at the data, if there is one.
func ClaimOf(ctx context.Context) (c fence.Claim, ok bool) {
	c, ok = ctx.Value(claimKey{}).(fence.Claim)
	return c, ok
}
