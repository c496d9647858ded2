package httpgate

import (
	"context"
	"net/http"

	"example.com/redlock/fence"
)

// Open returns a client like c (nil for http.DefaultClient) for the holder of an
// exclusive lease: all its requests carry the name of the lock and the token.
// The first request opens the gate, so whoever is to read and then write reads
// through this client as well. If c is of an earlier Open, its name and token are
// replaced. There is nothing to close: it shares c's Transport. A stale token comes
// back as a response with status 412, not as an error: see Refused.
func Open(c *http.Client, name string, token fence.Token) *http.Client {
	return withClaim(c, name, fence.Claim{Token: token})
}

// OpenShared is Open for the holder of a shared lease, which may only read.
func OpenShared(c *http.Client, name string, token fence.Token) *http.Client {
	return withClaim(c, name, fence.Claim{Token: token, Shared: true})
}

func withClaim(c *http.Client, name string, claim fence.Claim) *http.Client {
	if c == nil {
		c = http.DefaultClient
	}
	with, base := *c, c.Transport
	if old, ok := base.(*transport); ok {
		base = old.base // there is one at most
	}
	with.Transport = &transport{base: base, name: encodeName(name), claim: claim}
	return &with
}

type transport struct {
	base  http.RoundTripper
	name  string
	claim fence.Claim
}

// claimedKey holds the transport that has set the headers of a request, for those
// further in: if a client of Open was wrapped and opened again, the last Open
// counts.
type claimedKey struct{}

// claimed tells whether a transport further out has set the headers of r. The
// context alone does not tell: that of a request may go into others.
func claimed(r *http.Request) bool {
	outer, ok := r.Context().Value(claimedKey{}).(*transport)
	if !ok {
		return false
	}
	claim, ok := claimIn(r.Header)
	return ok && claim == outer.claim && r.Header.Get(KeyHeader) == outer.name
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.base
	if base == nil {
		base = http.DefaultTransport
	}
	if claimed(r) {
		return base.RoundTrip(r)
	}
	// A RoundTripper does not change its request.
	r = r.Clone(context.WithValue(r.Context(), claimedKey{}, t))
	r.Header.Set(KeyHeader, t.name)
	setClaim(r.Header, t.claim)
	resp, err := base.RoundTrip(r)
	if err == nil && resp.Request == nil { // not all RoundTrippers set it
		resp.Request = r
	}
	return resp, err
}

// Refused returns the *fence.StaleError if resp is a gate's answer to a stale
// token, and nil if not. A 412 of other origin (If-Match) is none. If resp does
// not say which request it answers, the error lacks the name and the claim.
func Refused(resp *http.Response) error {
	if resp.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	seen, ok := claimIn(resp.Header)
	if !ok {
		return nil
	}
	stale := &fence.StaleError{Seen: seen}
	if r := resp.Request; r != nil {
		stale.Claim, _ = claimIn(r.Header)
		stale.Resource, _ = decodeName(r.Header.Get(KeyHeader))
	}
	return stale
}

func claimIn(h http.Header) (c fence.Claim, ok bool) {
	token, err := fence.ParseToken(h.Get(FenceHeader))
	return fence.Claim{Token: token, Shared: h.Get(ModeHeader) == modeShared}, err == nil
}
