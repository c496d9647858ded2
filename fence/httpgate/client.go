package httpgate

import (
	"net/http"

	"example.com/redlock/fence"
)

// Open returns a client like c (nil for http.DefaultClient) for the holder of an
// exclusive lease: all its requests carry the name of the lock and the token.
// The first request opens the gate, so whoever is to read and then write reads
// through this client as well.
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
	with := *c
	with.Transport = &transport{base: c.Transport, name: encodeName(name), claim: claim}
	return &with
}

type transport struct {
	base  http.RoundTripper
	name  string
	claim fence.Claim
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.base
	if base == nil {
		base = http.DefaultTransport
	}
	r = r.Clone(r.Context()) // a RoundTripper does not change its request
	r.Header.Set(KeyHeader, t.name)
	setClaim(r.Header, t.claim)
	return base.RoundTrip(r)
}

// Refused returns the *fence.StaleError if resp is a gate's answer to a stale
// token, and nil if not. A 412 of other origin (If-Match) is none.
func Refused(resp *http.Response) error {
	if resp.StatusCode != http.StatusPreconditionFailed || resp.Request == nil {
		return nil
	}
	seen, ok := claimIn(resp.Header)
	if !ok {
		return nil
	}
	claim, _ := claimIn(resp.Request.Header)
	name, _ := decodeName(resp.Request.Header.Get(KeyHeader))
	return &fence.StaleError{Resource: name, Claim: claim, Seen: seen}
}

func claimIn(h http.Header) (c fence.Claim, ok bool) {
	token, err := fence.ParseToken(h.Get(FenceHeader))
	return fence.Claim{Token: token, Shared: h.Get(ModeHeader) == modeShared}, err == nil
}
