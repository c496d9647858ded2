package quorum

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/monotime"
	"example.com/redlock/memnode"
)

func three(t *testing.T, c *Config) (*Backend, []*memnode.Node) {
	t.Helper()
	ms := []*memnode.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
	if c == nil {
		c = &Config{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	b, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, c)
	if err != nil {
		t.Fatal(err)
	}
	b.Init(t.Context(), backend.InitOptions{})
	return b, ms
}

// One lease notices the sleep, the others are not looked at.
func TestOtherLeaseAfterSleepNoticedByACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		b, _ := three(t, nil)
		b.clock = monotime.NewAsleep(func() time.Duration { return time.Duration(asleep.Load()) })
		lostAt := make(chan time.Time, 2)
		take := func(name string) backend.Lease {
			l, err := b.Acquire(t.Context(), backend.Request{Name: name, TTL: 10 * time.Second, NoRenew: true,
				Lost: func(error) { lostAt <- time.Now() }})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		x := take("x")
		_ = take("y")
		time.Sleep(100 * time.Millisecond)
		asleep.Add(int64(time.Hour))
		woke := time.Now()
		_ = x.Release(t.Context()) // notices
		<-lostAt                   // x
		at := <-lostAt
		t.Logf("y told %v after waking", at.Sub(woke))
		if at.Sub(woke) > 1100*time.Millisecond {
			t.Errorf("y told %v after waking, want at most a second", at.Sub(woke))
		}
		_ = b.Close(t.Context())
	})
}

// The machine sleeps while the answers to an acquire are on their way.
func TestSleepDuringAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		b, ms := three(t, nil)
		b.clock = monotime.NewAsleep(func() time.Duration { return time.Duration(asleep.Load()) })
		l, err := b.Acquire(t.Context(), backend.Request{Name: "warm", TTL: 10 * time.Second, NoRenew: true})
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Release(t.Context())
		time.Sleep(3 * time.Second)
		for _, m := range ms {
			m.Delay(10 * time.Millisecond)
		}
		time.AfterFunc(5*time.Millisecond, func() { asleep.Add(int64(time.Hour)) })
		l, err = b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, NoRenew: true, MinValidity: 5 * time.Second, MaxAttempts: 1})
		if err == nil {
			t.Errorf("a lease that ended an hour ago was returned; Deadline says %v left", time.Until(l.Deadline()))
		} else {
			t.Log(err)
		}
		_ = b.Close(t.Context())
	})
}

// Deadline right after waking.
func TestDeadlineAfterSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		b, _ := three(t, nil)
		b.clock = monotime.NewAsleep(func() time.Duration { return time.Duration(asleep.Load()) })
		l, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second, NoRenew: true})
		if err != nil {
			t.Fatal(err)
		}
		asleep.Add(int64(time.Hour))
		if left := time.Until(l.Deadline()); left > 0 {
			t.Errorf("Deadline says %v left after an hour asleep", left)
		}
		_ = b.Close(t.Context())
	})
}

// Close drops a queued Inspect.
func TestCloseDropsInspect(t *testing.T) {
	b, ms := three(t, nil)
	l, err := b.Acquire(context.Background(), backend.Request{Name: "x", TTL: 10 * time.Second, NoRenew: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Release(context.Background())
	time.Sleep(50 * time.Millisecond)
	for _, m := range ms {
		m.Freeze()
	}
	first := make(chan struct{})
	go func() { b.Inspect(context.Background(), "a"); close(first) }() // in flight
	time.Sleep(20 * time.Millisecond)
	done := make(chan struct{})
	go func() { b.Inspect(context.Background(), "b"); close(done) }() // queued
	time.Sleep(20 * time.Millisecond)
	t.Log("close:", b.Close(context.Background()))
	select {
	case <-done:
	case <-time.After(8 * time.Second):
		t.Error("Inspect with no deadline hangs 8 s after Close")
	}
	for _, m := range ms {
		m.Thaw()
	}
}

// Close(expired ctx) drops a queued release: Release hangs.
func TestCloseDropsRelease(t *testing.T) {
	b, ms := three(t, nil)
	l, err := b.Acquire(context.Background(), backend.Request{Name: "x", TTL: 10 * time.Second, NoRenew: true})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	for _, m := range ms {
		m.Freeze()
	}
	go b.Acquire(context.Background(), backend.Request{Name: "other", TTL: 10 * time.Second}) // in flight
	time.Sleep(10 * time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- l.Release(context.Background()) }() // queued
	time.Sleep(10 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	t.Log("close:", b.Close(ctx))
	select {
	case err := <-done:
		t.Log(err)
	case <-time.After(8 * time.Second):
		t.Error("Release hangs 8 s after Close")
	}
	for _, m := range ms {
		m.Thaw()
	}
}

// A Break that was reported as failed deletes a later holder's lease.
func TestLateBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		other, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, &Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		req := backend.Request{Name: "x", TTL: 10 * time.Second}
		old, err := other.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		// The operator's process cannot reach the nodes for a second.
		for _, m := range ms {
			m.Down(true)
		}
		go b.Nodes(t.Context())
		err = b.Break(t.Context(), "x", true)
		t.Log("break:", err)
		if !errors.Is(err, backend.ErrNoQuorum) {
			t.Fatal("break did not fail")
		}
		for _, m := range ms {
			m.Down(false)
		}
		if err := old.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := other.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		stored := 0
		for _, m := range ms {
			if _, _, ok := m.Get("redlock:{x}"); ok {
				stored++
			}
		}
		t.Logf("stored on %d nodes", stored)
		if stored != 3 {
			t.Errorf("the new holder's lease is on %d nodes, deadline in %v", stored, time.Until(l.Deadline()))
		}
		_ = b.Close(t.Context())
		_ = other.Close(t.Context())
	})
}

// mixed declares three nodes, the third of them for a backend of its own, and
// returns that and the one of all three, which has met none yet.
func mixed(t *testing.T, ms []*memnode.Node) (foreign, b *Backend) {
	t.Helper()
	open := func(ms ...*memnode.Node) *Backend {
		var nodes []Node
		for _, m := range ms {
			nodes = append(nodes, m.Client())
		}
		b, err := New(nodes, &Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b, foreign = open(ms...), open(ms[2])
	b.Init(t.Context(), backend.InitOptions{})
	ms[2].Wipe()
	foreign.Init(t.Context(), backend.InitOptions{})
	return foreign, b
}

// The first caller's short ctx marks everything as met.
func TestMetByAnImpatientCaller(t *testing.T) {
	for _, impatient := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ms := []*memnode.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
			foreign, b := mixed(t, ms)
			ms[0].Delay(2 * time.Millisecond)
			ms[1].Delay(2 * time.Millisecond)
			ms[2].Delay(10 * time.Millisecond)
			req := backend.Request{Name: "x", TTL: 10 * time.Second, MaxAttempts: 1}
			if impatient {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				_, err := b.Acquire(ctx, req)
				t.Log("first:", err)
				cancel()
			}
			_, err := b.Acquire(t.Context(), req)
			if !errors.Is(err, backend.ErrMismatch) {
				t.Errorf("impatient first caller %v: second gets %v, want ErrMismatch", impatient, err)
			}
			time.Sleep(time.Second)
			_ = b.Close(t.Context())
			_ = foreign.Close(t.Context())
		})
	}
}

// MayBeHeld long after the TTL.
func TestMayBeHeldForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		other, _ := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, &Config{Logger: slog.New(slog.DiscardHandler)})
		if _, err := other.Acquire(t.Context(), backend.Request{Name: "x", TTL: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		// one warm up so that b has met all
		b.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, NoWait: true})
		time.AfterFunc(500*time.Millisecond, func() { ms[2].DropReplies(true) })
		_, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, Wait: time.Minute + time.Second/3})
		if backend.MayBeHeld(err) {
			t.Errorf("a minute later, TTL 1 s: MayBeHeld of %v", err)
		}
		ms[2].DropReplies(false)
		_ = b.Close(t.Context())
		_ = other.Close(t.Context())
	})
}

type stuck struct {
	slog.Handler
	gate chan struct{}
}

func (s stuck) Enabled(context.Context, slog.Level) bool  { return true }
func (s stuck) Handle(context.Context, slog.Record) error { <-s.gate; return nil }

// A log sink that is stuck keeps the end of a lease from being told.
func TestStuckLog(t *testing.T) {
	gate := make(chan struct{})
	b, ms := three(t, &Config{Logger: slog.New(stuck{slog.DiscardHandler, gate})})
	lost := make(chan error, 1)
	l, err := b.Acquire(context.Background(), backend.Request{Name: "x", TTL: 400 * time.Millisecond, Lost: func(err error) { lost <- err }})
	if err != nil {
		t.Fatal(err)
	}
	until := l.Deadline()
	ms[2].Down(true) // one of three; somebody else notices first
	go b.Acquire(context.Background(), backend.Request{Name: "other", TTL: 10 * time.Second})
	time.Sleep(50 * time.Millisecond)
	ms[0].Freeze()
	ms[1].Freeze()
	defer ms[0].Thaw()
	defer ms[1].Thaw()
	select {
	case <-lost:
		t.Logf("told %v after the deadline", time.Since(until))
	case <-time.After(2 * time.Second):
		if len(lost) == 0 {
			t.Errorf("not told %v after the deadline", time.Since(until))
		}
	}
	close(gate)
	for _, m := range ms {
		m.Down(false)
	}
	_ = b.Close(context.Background())
}
