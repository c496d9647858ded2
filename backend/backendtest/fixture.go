package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"example.com/redlock/backend"
)

// patience is how long a case waits for something that must happen. A backend
// that works needs a fraction of it; only a broken one, or a machine that
// stands still, uses it up. The suite's own tests, whose backends are broken
// on purpose, cut it.
var patience = 15 * time.Second

// promptly is how soon a call must return that was told to stop. It is long
// against any backend's round trip and short against the leases in its way.
const promptly = 3 * time.Second

// fixture is what one case works with.
type fixture struct {
	*testing.T
	harness Harness
	limits  backend.Limits
	// name is a lock name that nobody else uses.
	name string

	mu   sync.Mutex
	held []*holder
}

func newFixture(t *testing.T, h Harness) *fixture {
	f := &fixture{T: t, harness: h, name: "backendtest/" + rand.Text()}
	t.Cleanup(f.checkLost)
	return f
}

// client connects another client to the service.
func (f *fixture) client() backend.Backend {
	f.Helper()
	b := f.harness.Open(f.T)
	if b == nil {
		f.Fatal("Open returned nil")
	}
	f.limits = b.Limits()
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil && !errors.Is(err, backend.ErrClosed) {
			f.Errorf("Close: %v", err)
		}
	})
	return checked{b, f.T}
}

// fleeting is a TTL that a case waits out.
func (f *fixture) fleeting() time.Duration { return f.within(500 * time.Millisecond) }

// steady is a TTL that leaves a loaded machine time to renew, and time to
// report a loss before the lease is over.
func (f *fixture) steady() time.Duration { return f.within(time.Second) }

// lasting is a TTL that does not end during a case.
func (f *fixture) lasting() time.Duration { return f.within(time.Minute) }

func (f *fixture) within(ttl time.Duration) time.Duration {
	return min(max(ttl, f.limits.MinTTL), f.limits.MaxTTL)
}

// request asks for the fixture's name.
func (f *fixture) request(ttl time.Duration) backend.Request {
	return backend.Request{Name: f.name, TTL: ttl, MinValidity: ttl / 2, Owner: "backendtest"}
}

// try is request without a wait.
func (f *fixture) try() backend.Request {
	r := f.request(f.lasting())
	r.NoWait = true
	return r
}

// holder is a lease together with what its Lost has been told.
type holder struct {
	backend.Lease
	mu   sync.Mutex
	lost []error
}

func (h *holder) tell(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = append(h.lost, err)
}

// told returns the calls of Lost so far.
func (h *holder) told() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]error(nil), h.lost...)
}

// acquire runs b.Acquire and watches Lost.
func (f *fixture) acquire(ctx context.Context, b backend.Backend, r backend.Request) (*holder, error) {
	return f.watch(r, func(r backend.Request) (backend.Lease, error) { return b.Acquire(ctx, r) })
}

func (f *fixture) watch(r backend.Request,
	call func(backend.Request) (backend.Lease, error)) (*holder, error) {
	h := &holder{}
	r.Lost = h.tell
	l, err := call(r)
	if err != nil {
		return nil, err
	}
	h.Lease = l
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = append(f.held, h)
	return h, nil
}

// must is acquire for a lease that has to be had.
func (f *fixture) must(b backend.Backend, r backend.Request) *holder {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	h, err := f.acquire(ctx, b, r)
	if err != nil {
		f.Fatalf("Acquire: %v", err)
	}
	return h
}

// mustRelease gives h back.
func (f *fixture) mustRelease(h *holder) {
	f.Helper()
	if err := h.Release(f.Context()); err != nil {
		f.Fatalf("Release: %v", err)
	}
}

// wantHeld demands that somebody holds the name.
func (f *fixture) wantHeld(b backend.Backend) {
	f.Helper()
	h, err := f.acquire(f.Context(), b, f.try())
	f.wantErr("Acquire with NoWait of a held name", err, backend.ErrHeld)
	if h != nil {
		f.mustRelease(h)
	}
}

// mustExtend extends h. An ErrNoQuorum is no refusal: the lease is still held, and may
// be extended by the next try.
func (f *fixture) mustExtend(what string, h *holder) {
	f.Helper()
	f.eventually(what+" succeeds", func() bool {
		err := h.Extend(f.Context())
		if err != nil && !errors.Is(err, backend.ErrNoQuorum) {
			f.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

// wantErr demands that err is want.
func (f *fixture) wantErr(what string, err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// wantLost waits until h was told of its loss.
func (f *fixture) wantLost(h *holder) {
	f.Helper()
	f.eventually("Lost is called", func() bool { return len(h.told()) > 0 })
}

// wantQuiet demands that h was not told of any loss.
func (f *fixture) wantQuiet(h *holder) {
	f.Helper()
	if told := h.told(); len(told) > 0 {
		f.Errorf("Lost was called: %v", told)
	}
}

// checkLost runs after the clients are closed: whatever calls of Lost were
// still to come have come.
func (f *fixture) checkLost() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.held {
		told := h.told()
		if len(told) > 1 {
			f.Errorf("Lost was called %d times for one lease: %v", len(told), told)
		}
		for _, err := range told {
			if !errors.Is(err, backend.ErrLost) {
				f.Errorf("Lost was told %v, want an ErrLost", err)
			}
		}
	}
}

// eventually waits for cond.
func (f *fixture) eventually(what string, cond func() bool) {
	f.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	give := time.NewTimer(patience)
	defer give.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-give.C:
			f.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// checked demands of every call that yields a lease: a lease or an error, never
// both and never none.
type checked struct {
	backend.Backend
	t *testing.T
}

func (c checked) Acquire(ctx context.Context, r backend.Request) (backend.Lease, error) {
	l, err := c.Backend.Acquire(ctx, r)
	return c.check("Acquire", l, err)
}

func (c checked) Resume(ctx context.Context, handle string, r backend.Request) (backend.Lease, error) {
	l, err := c.Backend.Resume(ctx, handle, r)
	return c.check("Resume", l, err)
}

func (c checked) check(call string, l backend.Lease, err error) (backend.Lease, error) {
	if l != nil {
		// A nil pointer in an interface passes for a lease until it is used.
		if v := reflect.ValueOf(l); v.Kind() == reflect.Pointer && v.IsNil() {
			c.t.Errorf("%s returned a nil %T that is not a nil Lease", call, l)
			l = nil
		}
	}
	switch {
	case l == nil && err == nil:
		c.t.Errorf("%s returned neither a lease nor an error", call)
		return nil, errors.New("neither a lease nor an error")
	case l != nil && err != nil:
		c.t.Errorf("%s returned a lease and the error %v", call, err)
	}
	return l, err
}
