package backendtest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
)

// exclusion counts under the lock without any other. The counter is atomic
// only because a lock in another process orders nothing for the race detector;
// reading and writing it stay two steps.
func exclusion(f *fixture) {
	const workers, rounds = 8, 5
	clients := []backend.Backend{f.client(), f.client()}
	r := f.request(f.lasting())
	var (
		wg              sync.WaitGroup
		inside, counter atomic.Int64
		last            atomic.Uint64
	)
	ctx, cancel := context.WithTimeout(f.Context(), 4*patience)
	defer cancel()
	section := func(h *holder) {
		if inside.Add(1) != 1 {
			f.Error("two holders at once")
		}
		seen := counter.Load()
		for range 100 { // give a second holder time to come in
			runtime.Gosched()
		}
		counter.Store(seen + 1)
		// Each holder follows the one before, so its token must be larger.
		if before := last.Swap(uint64(h.Token())); uint64(h.Token()) <= before {
			f.Errorf("token %d came after %d", h.Token(), before)
		}
		inside.Add(-1)
	}
	for i := range workers {
		wg.Go(func() {
			for range rounds {
				h, err := f.acquire(ctx, clients[i%len(clients)], r)
				if err != nil {
					f.Errorf("Acquire: %v", err)
					return
				}
				section(h)
				if err := h.Release(ctx); err != nil {
					f.Errorf("Release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if got := counter.Load(); got != workers*rounds && !f.Failed() {
		f.Errorf("counted %d under the lock, want %d: updates were lost", got, workers*rounds)
	}
}

func tokensGrow(f *fixture) {
	clients := []backend.Backend{f.client(), f.client()}
	var last fence.Token
	for i := range 10 {
		h := f.must(clients[i%len(clients)], f.request(f.lasting()))
		token := h.Token()
		if token <= last {
			f.Fatalf("token %d came after %d", token, last)
		}
		if token > fence.MaxToken {
			f.Fatalf("token %d is above the largest possible", token)
		}
		f.mustExtend("Extend", h)
		if now := h.Token(); now != token {
			f.Fatalf("token changed from %d to %d by an extension", token, now)
		}
		last = token
		f.mustRelease(h)
	}
}

func noWait(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	f.wantHeld(b)
	// A lease belongs to one acquisition, not to the client.
	f.wantHeld(a)
	f.mustRelease(h)
	f.mustRelease(f.must(b, f.try()))
}

func waitsForRelease(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	w := f.wait(f.Context(), b, f.request(f.lasting()))
	wait := <-w.waiting
	if wait.Attempts < 1 || wait.Err == nil {
		f.Errorf("OnWait was told %+v, want at least one attempt and what it met", wait)
	}
	f.mustRelease(h)
	got := w.result(f)
	if got.err != nil {
		f.Fatalf("Acquire, after the holder released: %v", got.err)
	}
	if got.h.Token() <= h.Token() {
		f.Errorf("token %d came after %d", got.h.Token(), h.Token())
	}
	f.mustRelease(got.h)
}

func waitBound(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	r := f.request(f.lasting())
	r.Wait = 200 * time.Millisecond
	begin := time.Now()
	_, err := f.acquire(f.Context(), b, r)
	f.wantErr("Acquire with Wait", err, backend.ErrHeld)
	// The bound is not the caller's deadline and must not be taken for it.
	if errors.Is(err, context.DeadlineExceeded) {
		f.Errorf("Acquire with Wait: %v is a DeadlineExceeded, but ctx has not ended", err)
	}
	if took := time.Since(begin); took > r.Wait+promptly {
		f.Errorf("Acquire with Wait %v returned after %v", r.Wait, took)
	}
	f.mustRelease(h)
}

func cancelWhileWaiting(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	w := f.wait(ctx, b, f.request(f.lasting()))
	<-w.waiting
	begin := time.Now()
	cancel()
	f.wantErr("Acquire, cancelled while waiting", w.result(f).err, context.Canceled)
	if took := time.Since(begin); took > promptly {
		f.Errorf("Acquire returned %v after its context ended", took)
	}
	f.mustRelease(h)
	f.wantFree(a)
}

func deadlineWhileWaiting(f *fixture) {
	a, b := f.client(), f.client()
	h := f.must(a, f.request(f.lasting()))
	const bound = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(f.Context(), bound)
	defer cancel()
	begin := time.Now()
	_, err := f.acquire(ctx, b, f.request(f.lasting()))
	f.wantErr("Acquire, deadline while waiting", err, context.DeadlineExceeded)
	if took := time.Since(begin); took > bound+promptly {
		f.Errorf("Acquire returned after %v, its context ended after %v", took, bound)
	}
	f.mustRelease(h)
	f.wantFree(a)
}

func deadContext(f *fixture) {
	a := f.client()
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	_, err := f.acquire(ctx, a, f.request(f.lasting()))
	f.wantErr("Acquire on a dead context", err, context.Canceled)
	f.wantFree(a)
}

// wantFree demands that nothing of an attempt that failed stays behind. Its
// undo may still be under way.
func (f *fixture) wantFree(b backend.Backend) {
	f.Helper()
	r := f.request(f.lasting())
	r.Wait = promptly
	f.mustRelease(f.must(b, r))
}

// waiter is an Acquire in the background.
type waiter struct {
	// waiting gets the first OnWait, or is closed when Acquire returns.
	waiting chan backend.Wait
	done    chan struct{}
	outcome outcome
}

type outcome struct {
	h   *holder
	err error
	at  time.Time
}

// wait begins an Acquire in the background.
func (f *fixture) wait(ctx context.Context, b backend.Backend, r backend.Request) *waiter {
	w := &waiter{waiting: make(chan backend.Wait, 1), done: make(chan struct{})}
	r.OnWait = func(info backend.Wait) {
		select {
		case w.waiting <- info:
		default: // only the first is looked at
		}
	}
	go func() {
		defer close(w.done)
		defer close(w.waiting)
		h, err := f.acquire(ctx, b, r)
		w.outcome = outcome{h, err, time.Now()}
	}()
	f.Cleanup(func() {
		select {
		case <-w.done:
		case <-time.After(promptly): // a backend that ignores ctx must not hang the suite
		}
	})
	return w
}

// result waits for the Acquire to return.
func (w *waiter) result(f *fixture) outcome {
	f.Helper()
	give := time.NewTimer(patience)
	defer give.Stop()
	select {
	case <-w.done:
	case <-give.C:
		f.Fatalf("Acquire did not return within %v", patience)
	}
	return w.outcome
}
