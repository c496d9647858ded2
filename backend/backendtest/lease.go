package backendtest

import (
	"context"
	"time"

	"example.com/redlock/backend"
)

func outlivesItsContext(f *fixture) {
	a, b := f.client(), f.client()
	ctx, cancel := context.WithCancel(f.Context())
	h, err := f.acquire(ctx, a, f.request(f.steady()))
	cancel()
	if err != nil {
		f.Fatalf("Acquire: %v", err)
	}
	begin := time.Now()
	f.eventually("the lease is renewed after the context of Acquire ended", func() bool {
		return h.Deadline().After(begin.Add(2 * f.steady()))
	})
	f.wantHeld(b)
	f.wantQuiet(h)
	f.mustRelease(h)
}

func renewsItself(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.steady()))
	begin := time.Now()
	f.eventually("the lease lives for three TTLs", func() bool {
		return time.Since(begin) > 3*f.steady()
	})
	if left := time.Until(h.Deadline()); left <= 0 {
		f.Errorf("after three TTLs the deadline had passed by %v", -left)
	}
	f.wantHeld(b)
	f.wantQuiet(h)
	f.mustRelease(h)
	f.mustRelease(f.must(b, f.try()))
	f.wantQuiet(h)
}

func noRenewEnds(f *fixture) {
	a, b := f.client(), f.client()
	r := f.request(f.steady())
	r.NoRenew = true
	h := f.must(a, r)
	f.endsAlone(h, b)
}

func stopRenewalEnds(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.steady()))
	h.StopRenewal()
	f.mustExtend("Extend of a lease whose renewal was stopped", h)
	f.endsAlone(h, b)
}

// endsAlone demands that h ends by itself, and that its holder knows it before
// a rival can hold the name.
func (f *fixture) endsAlone(h *holder, b backend.Backend) {
	f.Helper()
	w := f.wait(f.Context(), b, f.request(f.lasting()))
	got := w.result(f)
	told := h.told()
	if got.err != nil {
		f.Fatalf("Acquire, after the lease ended: %v", got.err)
	}
	if !got.at.After(h.Deadline()) {
		f.Errorf("a rival held the name %v before the deadline", h.Deadline().Sub(got.at))
	}
	if len(told) != 1 {
		f.Errorf("when a rival held the name Lost had been called %d times, want once", len(told))
	}
	f.wantErr("Release of a lease that ended", h.Release(f.Context()), backend.ErrLost)
	f.wantHeld(b)
	f.mustRelease(got.h)
}

func extendProlongs(f *fixture) {
	a, b := f.client(), f.client()
	r := f.request(f.steady())
	r.NoRenew = true
	h := f.must(a, r)
	first := h.Deadline()
	f.eventually("extensions move the deadline by more than a TTL", func() bool {
		f.mustExtend("Extend", h)
		return h.Deadline().After(first.Add(f.steady()))
	})
	f.wantHeld(b)
	f.wantQuiet(h)
	f.mustRelease(h)
	if err := h.Extend(f.Context()); err == nil {
		f.Error("Extend after Release returned nil")
	}
	f.mustRelease(f.must(b, f.try()))
}

// lose returns a lease that has ended by itself.
func (f *fixture) lose(b backend.Backend) *holder {
	f.Helper()
	r := f.request(f.fleeting())
	r.NoRenew = true
	h := f.must(b, r)
	f.wantLost(h)
	return h
}

func extendNeverRevives(f *fixture) {
	a, b := f.client(), f.client()
	h := f.lose(a)
	deadline := h.Deadline()
	f.wantErr("Extend of a lost lease", h.Extend(f.Context()), backend.ErrLost)
	// The name is free for others, no matter how often the loser asks.
	rival := f.must(b, f.request(f.lasting()))
	f.wantErr("Extend of a lost lease", h.Extend(f.Context()), backend.ErrLost)
	// A backend may compute the time from another clock, and not twice alike.
	if moved := h.Deadline().Sub(deadline); moved > time.Millisecond {
		f.Errorf("the deadline of a lost lease moved by %v", moved)
	}
	f.mustRelease(rival)
	f.wantErr("Extend of a lost lease", h.Extend(f.Context()), backend.ErrLost)
	f.mustRelease(f.must(b, f.try()))
}

func releaseTwice(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	f.mustRelease(h)
	rival := f.must(b, f.try())
	if err := h.Release(f.Context()); err != nil {
		f.Errorf("the second Release returned %v, the first nil", err)
	}
	f.wantHeld(a)
	f.wantQuiet(h)
	f.mustRelease(rival)
}

func releaseOnDeadContext(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	begin := time.Now()
	if err := h.Release(ctx); err != nil {
		f.Errorf("Release on a dead context: %v", err)
	}
	if took := time.Since(begin); took > promptly {
		f.Errorf("Release on a dead context took %v", took)
	}
	f.mustRelease(f.must(b, f.try()))
}

func releaseOfLost(f *fixture) {
	a, b := f.client(), f.client()
	h := f.lose(a)
	rival := f.must(b, f.request(f.lasting()))
	f.wantErr("Release of a lost lease", h.Release(f.Context()), backend.ErrLost)
	f.wantErr("the second Release of a lost lease", h.Release(f.Context()), backend.ErrLost)
	// What the loser gave back was not its own any more.
	f.wantHeld(a)
	f.wantHeld(b)
	f.mustExtend("Extend of the successor's lease", rival)
	f.wantQuiet(rival)
	f.mustRelease(rival)
}
