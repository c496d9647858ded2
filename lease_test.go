package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/locktest"
)

func acquire(t *testing.T, lk *redlock.Locker, name string, o *redlock.AcquireOptions) *redlock.Lease {
	t.Helper()
	l, err := lk.Acquire(t.Context(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func isEnded(t *testing.T, l *redlock.Lease, cause error) {
	t.Helper()
	if l.Context().Err() == nil {
		t.Fatalf("context lives, want it ended with %v", cause)
	}
	if got := context.Cause(l.Context()); !errors.Is(got, cause) {
		t.Fatalf("context ended with %v, want %v", got, cause)
	}
}

// stored counts the nodes that store the lease of name.
func stored(s *locktest.Service, name string) int {
	count := 0
	for _, n := range s.Nodes {
		if _, _, ok := n.Get("redlock:{" + name + "}"); ok {
			count++
		}
	}
	return count
}

func TestALeaseLivesAsLongAsItIsRenewed(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, n, nil)
			l := acquire(t, lk, "x", nil)
			time.Sleep(time.Hour)
			if err := l.Context().Err(); err != nil {
				t.Fatalf("%d nodes: after an hour: %v", n, context.Cause(l.Context()))
			}
			if left := time.Until(l.Deadline()); left < 6*time.Second || left > 10*time.Second {
				t.Errorf("%d nodes: %v left, want about two thirds of the TTL or more", n, left)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			isEnded(t, l, redlock.ErrReleased)
			synctest.Wait()
			if got := stored(s, "x"); got != 0 {
				t.Errorf("%d nodes: %d still store the lease after Release", n, got)
			}
		})
	}
}

func TestB18ALeaseWonAfterWaitingIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		rival := s.Open(t, nil)
		held := acquire(t, rival, "x", &redlock.AcquireOptions{TTL: 20 * time.Second})
		time.AfterFunc(12*time.Second, func() { _ = held.Release(context.Background()) })
		// What is handed over lasts two seconds, and is being extended then.
		l := acquire(t, lk, "x", &redlock.AcquireOptions{TTL: 10 * time.Second, MinValidity: 9 * time.Second})
		if left := time.Until(l.Deadline()); left < 9*time.Second {
			t.Errorf("won after a wait longer than the TTL: %v left of 10 s", left)
		}
		time.Sleep(30 * time.Second)
		if l.Context().Err() != nil {
			t.Errorf("the first renewal failed: %v", context.Cause(l.Context()))
		}
	})
}

func TestB24ValidityEndsWithoutAnyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 5, nil)
		plain := acquire(t, lk, "plain", &redlock.AcquireOptions{NoRenew: true})
		renewed := acquire(t, lk, "renewed", nil)
		start := time.Now()
		for _, n := range s.Nodes {
			n.Freeze()
		}
		for _, l := range []*redlock.Lease{plain, renewed} {
			<-l.Context().Done()
			// 10 s less 1 %, 2 ms and 250 ms.
			if took := time.Since(start); took > 9648*time.Millisecond || took < 9600*time.Millisecond {
				t.Errorf("%s ended after %v, want 9.648 s", l.Name(), took)
			}
			isEnded(t, l, redlock.ErrLost)
			if !l.Deadline().Before(time.Now().Add(time.Microsecond)) {
				t.Errorf("%s ended before its deadline %v", l.Name(), l.Deadline())
			}
		}
		for _, n := range s.Nodes {
			n.Thaw()
		}
	})
}

func TestB39OneFailedRenewalEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Int64
		lk, s := locktest.New(t, 3, &redlock.Options{Observer: func(e redlock.Event) {
			if e.Kind == redlock.EventExtendFailed {
				failed.Add(1)
			}
		}})
		o := &redlock.AcquireOptions{TTL: 3 * time.Second}
		l := acquire(t, lk, "x", o)
		for range 20 { // outages half as long as the TTL, at every phase of the renewal
			time.Sleep(3100 * time.Millisecond)
			for _, n := range s.Nodes {
				n.Freeze()
			}
			time.Sleep(1500 * time.Millisecond)
			for _, n := range s.Nodes {
				n.Thaw()
			}
		}
		if l.Context().Err() != nil {
			t.Fatalf("lost: %v", context.Cause(l.Context()))
		}
		if failed.Load() == 0 {
			t.Error("no renewal failed: the outages missed them all")
		}
		for _, n := range s.Nodes {
			n.Wipe()
		}
		<-l.Context().Done() // a real loss
		again := acquire(t, lk, "x", o)
		time.Sleep(time.Minute)
		if again.Context().Err() != nil {
			t.Errorf("the next lease of the name is not renewed: %v", context.Cause(again.Context()))
		}
	})
}

func TestB41MaxHoldEndsALeaseThatWasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		rival := s.Open(t, nil)
		l := acquire(t, lk, "x", &redlock.AcquireOptions{MaxHold: 15 * time.Second})
		start := time.Now()
		<-l.Context().Done()
		if took := time.Since(start); took != 15*time.Second {
			t.Errorf("context ended after %v, want 15 s", took)
		}
		isEnded(t, l, redlock.ErrMaxHold)
		if got := stored(s, "x"); got == 0 {
			t.Error("the lease was released under a holder that may still run")
		}
		if err := l.Extend(t.Context()); !errors.Is(err, redlock.ErrMaxHold) {
			t.Errorf("Extend after MaxHold: %v", err)
		}
		acquire(t, rival, "x", nil)
		if took := time.Since(start); took > 25*time.Second+time.Second {
			t.Errorf("free after %v, want MaxHold and a TTL at most", took)
		}
	})
}

// A handle acts on its own acquisition, whatever became of the name since.
func TestB44ExtendAndReleaseActOnOneAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		first := acquire(t, lk, "x", nil)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, lk, "x", &redlock.AcquireOptions{NoRenew: true})
		for range 10 {
			if err := first.Extend(t.Context()); !errors.Is(err, redlock.ErrReleased) {
				t.Errorf("Extend after Release: %v", err)
			}
			if err := first.Release(t.Context()); err != nil {
				t.Errorf("repeated Release: %v, want the first result", err)
			}
		}
		time.Sleep(time.Second) // the third node may be asked after the others
		synctest.Wait()
		if got := stored(s, "x"); got != 3 {
			t.Errorf("%d nodes store the second lease, want 3", got)
		}
		if second.Context().Err() != nil {
			t.Error("the second lease ended")
		}
	})
}

func TestB45ExtendNeverTakesAnew(t *testing.T) {
	for _, stolen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, 3, nil)
			l := acquire(t, lk, "x", &redlock.AcquireOptions{NoRenew: true})
			for _, n := range s.Nodes {
				n.Delete("redlock:{x}")
				if stolen {
					n.Set("redlock:{x}", "0123456789abcdef0123456789abcdef:9", time.Minute)
				}
			}
			if err := l.Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
				t.Fatalf("Extend of a lease that is gone: %v", err)
			}
			isEnded(t, l, redlock.ErrLost)
			if err := l.Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
				t.Errorf("second Extend: %v", err)
			}
			if err := l.Release(t.Context()); !errors.Is(err, redlock.ErrLost) {
				t.Errorf("Release: %v", err)
			}
			synctest.Wait()
			want := 0
			if stolen {
				want = 3
			}
			if got := stored(s, "x"); got != want {
				t.Errorf("stolen %v: %d nodes store a lease, want %d", stolen, got, want)
			}
		})
	}
}

func TestB46OneHandleForTheWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, _ := locktest.New(t, 3, nil)
		l := acquire(t, lk, "x", &redlock.AcquireOptions{NoRenew: true})
		token := l.Token()
		for range 20 {
			before := l.Deadline()
			time.Sleep(9 * time.Second)
			if err := l.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			if moved := l.Deadline().Sub(before); moved < 8*time.Second {
				t.Errorf("the deadline moved by %v only", moved)
			}
		}
		if l.Token() != token {
			t.Errorf("token changed from %d to %d", token, l.Token())
		}
	})
}

// TestB52 takes leases within one renewal period of each other, in sequence and
// side by side: each has its own renewal.
func TestB52EachLeaseHasItsOwnRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, _ := locktest.New(t, 3, nil)
		for range 5 {
			l := acquire(t, lk, "x", nil)
			other := acquire(t, lk, "y", nil)
			time.Sleep(time.Second)
			if err := other.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
			if l.Context().Err() != nil {
				t.Fatalf("not renewed after its neighbour was released: %v", context.Cause(l.Context()))
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestB53ReleaseOfALostLeaseIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		bodyErr := errors.New("the body's own error")
		start := time.Now()
		var ended time.Time
		err := lk.Do(t.Context(), "x", nil, func(ctx context.Context, l *redlock.Lease) error {
			for _, n := range s.Nodes {
				n.Freeze()
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), redlock.ErrLost) {
				t.Errorf("body's context ended with %v", context.Cause(ctx))
			}
			time.Sleep(5 * time.Second) // a body that takes its time
			ended = time.Now()
			return bodyErr
		})
		if took := time.Since(ended); took > time.Millisecond {
			t.Errorf("Do returned %v after its body (after %v)", took, time.Since(start))
		}
		if !errors.Is(err, bodyErr) || !errors.Is(err, redlock.ErrLost) {
			t.Errorf("Do returned %v, want the body's error and ErrLost", err)
		}
		for _, n := range s.Nodes {
			n.Thaw()
		}
	})
}

func TestB54ALossInTheBackgroundIsNoPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		err := lk.Do(t.Context(), "x", nil, func(ctx context.Context, l *redlock.Lease) error {
			for _, n := range s.Nodes {
				n.Wipe()
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, redlock.ErrLost) {
			t.Errorf("Do returned %v, want ErrLost", err)
		}
	})
}

func TestDoReleasesWhenItsBodyPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = lk.Do(t.Context(), "x", nil, func(context.Context, *redlock.Lease) error { panic("body") })
		}()
		synctest.Wait()
		if got := stored(s, "x"); got != 0 {
			t.Errorf("%d nodes still store the lease", got)
		}
	})
}

func TestB55ALockerHasNoStateOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		slow := acquire(t, lk, "x", &redlock.AcquireOptions{NoRenew: true})
		time.Sleep(11 * time.Second)
		second := acquire(t, lk, "x", nil) // through the same object
		if err := slow.Release(t.Context()); !errors.Is(err, redlock.ErrLost) {
			t.Errorf("Release of a lease that ran out: %v", err)
		}
		synctest.Wait()
		if got := stored(s, "x"); got != 3 || second.Context().Err() != nil {
			t.Errorf("%d nodes store the second lease, its context: %v", got, second.Context().Err())
		}
	})
}

func TestB56TwoLeasesOfOneNameAreTwoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		first := acquire(t, lk, "x", nil)
		if _, err := lk.TryAcquire(t.Context(), "x", nil); !errors.Is(err, redlock.ErrHeld) {
			t.Fatalf("the same Locker took a name twice: %v", err)
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, lk, "x", nil)
		if err := second.Release(t.Context()); err != nil {
			t.Errorf("second release: %v", err)
		}
		synctest.Wait()
		if got := stored(s, "x"); got != 0 {
			t.Errorf("%d nodes still store a lease", got)
		}
	})
}

func TestHandleMovesALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 5, nil)
		other := s.Open(t, nil)
		l := acquire(t, lk, "name with\x00any\xffbytes", nil)
		handle, err := l.Handle()
		if err != nil {
			t.Fatal(err)
		}
		isEnded(t, l, redlock.ErrReleased)
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release after Handle: %v", err)
		}
		resumed, err := other.Resume(t.Context(), handle, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resumed.Token() <= l.Token() || resumed.Name() != l.Name() {
			t.Errorf("resumed %q with token %d after %d", resumed.Name(), resumed.Token(), l.Token())
		}
		for range 2 {
			if _, err := lk.Resume(t.Context(), handle, nil); !errors.Is(err, redlock.ErrLost) {
				t.Errorf("second Resume: %v, want ErrLost", err)
			}
		}
		time.Sleep(time.Minute)
		if resumed.Context().Err() != nil {
			t.Errorf("resumed lease: %v", context.Cause(resumed.Context()))
		}
		if err := resumed.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 5, nil)
		operator := s.Open(t, nil)
		l := acquire(t, lk, "x", nil)
		start := time.Now()
		if err := operator.Break(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := operator.TryAcquire(t.Context(), "x", nil); !errors.Is(err, redlock.ErrHeld) {
			t.Errorf("a broken lease keeps its name until its deadline: %v", err)
		}
		<-l.Context().Done()
		isEnded(t, l, redlock.ErrLost)
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("the holder was told after %v, want by its next renewal", took)
		}
		acquire(t, operator, "x", nil)
		if took := time.Since(start); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("free after %v, want its deadline", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 5, nil)
		operator := s.Open(t, nil)
		l := acquire(t, lk, "x", nil)
		if err := operator.Break(t.Context(), "x", &redlock.BreakOptions{Now: true}); err != nil {
			t.Fatal(err)
		}
		next, err := operator.TryAcquire(t.Context(), "x", nil)
		if err != nil || next.Token() <= l.Token() {
			t.Errorf("broken now: %v", err)
		}
		<-l.Context().Done()
	})
}

func TestCloseWaitsForBodiesAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		for i := range 100 {
			acquire(t, lk, fmt.Sprint(i), nil)
		}
		var wg sync.WaitGroup
		started := make(chan struct{})
		wg.Go(func() {
			err := lk.Do(context.Background(), "body", nil, func(ctx context.Context, l *redlock.Lease) error {
				close(started)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), redlock.ErrClosed) {
					t.Errorf("body ended with %v", context.Cause(ctx))
				}
				time.Sleep(25 * time.Second) // longer than the TTL: still renewed
				if stored(s, "body") != 3 {
					t.Error("the lease was released under its body")
				}
				return nil
			})
			if err != nil {
				t.Errorf("Do: %v", err)
			}
		})
		<-started
		wg.Go(func() {
			time.Sleep(time.Second)
			if _, err := lk.Acquire(context.Background(), "late", nil); !errors.Is(err, redlock.ErrClosed) {
				t.Errorf("Acquire while closing: %v", err)
			}
		})
		if err := lk.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		wg.Wait()
		for _, name := range []string{"0", "57", "99", "body"} {
			if got := stored(s, name); got != 0 {
				t.Errorf("%d nodes still store %q", got, name)
			}
		}
	})
}

func TestCloseThatRunsOutOfTimeReleasesNothingUnderABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		started := make(chan struct{})
		wg.Go(func() {
			_ = lk.Do(context.Background(), "x", nil, func(context.Context, *redlock.Lease) error {
				close(started)
				<-stop // ignores its context
				return nil
			})
		})
		<-started
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := lk.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if got := stored(s, "x"); got != 3 {
			t.Errorf("%d nodes store the lease of a running body, want 3", got)
		}
		close(stop)
		wg.Wait()
	})
}
