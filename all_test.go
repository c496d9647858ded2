package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/backend"
	"example.com/redlock/fence"
	"example.com/redlock/locktest"
	"example.com/redlock/quorum"
)

func acquireAll(t *testing.T, lk *redlock.Locker, o *redlock.AcquireOptions, names ...string) *redlock.Leases {
	t.Helper()
	s, err := lk.AcquireAll(t.Context(), names, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// failedNames are the names that err, a LeasesError about op, is about.
func failedNames(t *testing.T, err error, op string) []string {
	t.Helper()
	var e *redlock.LeasesError
	if !errors.As(err, &e) || e.Op != op {
		t.Fatalf("%v is no LeasesError about %s", err, op)
	}
	var names []string
	for _, f := range e.Failed {
		names = append(names, f.Name)
	}
	return names
}

// wantNames demands that err is about op and exactly these names, and is want.
func wantNames(t *testing.T, err error, op string, want error, names ...string) {
	t.Helper()
	if got := failedNames(t, err, op); !slices.Equal(got, names) || !errors.Is(err, want) {
		t.Errorf("%v: about %q, want %q and %v", err, got, names, want)
	}
}

// wantStored demands that n nodes store each of names, once those have been told
// that did not make the quorum.
func wantStored(t *testing.T, s *locktest.Service, n int, names ...string) {
	t.Helper()
	synctest.Wait()
	for _, name := range names {
		if got := stored(s, name); got != n {
			t.Errorf("%d nodes store %q, want %d", got, name, n)
		}
	}
}

// deleteEverywhere deletes the lease of name by hand, once no grant is under way
// that would store it again.
func deleteEverywhere(s *locktest.Service, name string) {
	synctest.Wait()
	for _, n := range s.Nodes {
		n.Delete("redlock:{" + name + "}")
	}
}

func TestManyNamesAreHeldAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		set, err := lk.AcquireAll(ctx, []string{"c", "a", "b", "a", "c"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel() // bounds the wait only
		if got := set.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("names %q", got)
		}
		time.Sleep(time.Hour)
		if set.Context().Err() != nil || set.Context().Value(key{}) != "value" {
			t.Errorf("context: %v, value %v", context.Cause(set.Context()), set.Context().Value(key{}))
		}
		wantStored(t, s, 3, "a", "b", "c")
		if left := time.Until(set.Deadline()); left < 6*time.Second || left > 10*time.Second {
			t.Errorf("%v left", left)
		}
		for _, name := range set.Names() {
			status, err := lk.Inspect(t.Context(), name)
			if err != nil || status.Token == 0 || set.Token(name) != status.Token {
				t.Errorf("token of %q is %v, the nodes say %v (%v)", name, set.Token(name), status.Token, err)
			}
		}
		if set.Token("aa") != 0 || set.TokenByClock() {
			t.Errorf("token of a name not held: %v; by clock: %v", set.Token("aa"), set.TokenByClock())
		}
		for range 2 {
			if err := set.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		}
		if got := context.Cause(set.Context()); !errors.Is(got, redlock.ErrReleased) {
			t.Errorf("context ended with %v", got)
		}
		if err := set.Extend(t.Context()); !errors.Is(err, redlock.ErrReleased) {
			t.Errorf("Extend after Release: %v", err)
		}
		wantStored(t, s, 0, "a", "b", "c")
	})
}

// TestB14: the release of a set does not stop at a name that was lost.
func TestB14OneLostNameKeepsNoOtherFromBeingReleased(t *testing.T) {
	for _, gone := range []string{"a", "b", "c"} {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, 3, nil)
			set := acquireAll(t, lk, nil, "a", "b", "c")
			deleteEverywhere(s, gone)
			for range 2 { // a repeated call gives the first result
				wantNames(t, set.Release(t.Context()), "release", redlock.ErrLost, gone)
			}
			wantStored(t, s, 0, "a", "b", "c")
			free := acquireAll(t, s.Open(t, nil), &redlock.AcquireOptions{Wait: redlock.NoWait}, "a", "b", "c")
			if err := free.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Names for which too few nodes answer are all named, after the time of one.
func TestReleaseOfASetWithoutAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		set := acquireAll(t, lk, nil, "a", "b", "c")
		wantStored(t, s, 3, "a", "b", "c")
		for _, n := range s.Nodes[1:] {
			n.Freeze()
			defer n.Thaw()
		}
		begin := time.Now()
		err := set.Release(t.Context())
		wantNames(t, err, "release", redlock.ErrNoQuorum, "a", "b", "c")
		if took := time.Since(begin); !redlock.MayBeHeld(err) || took > time.Second {
			t.Errorf("may be held: %v, after %v, want as soon as for a single name", redlock.MayBeHeld(err), took)
		}
	})
}

// TestB15 (a): who gives up between two names keeps none, at whatever moment.
func TestB15CancelledBetweenTwoNamesNoneIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		held := acquire(t, s.Open(t, nil), "y", nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		set, err := lk.AcquireAll(ctx, []string{"y", "x"}, &redlock.AcquireOptions{OnWait: func(redlock.Wait) {
			wantStored(t, s, 3, "x") // the first is held, the second waited for
			cancel()
		}})
		if set != nil || !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, %v", set, err)
		}
		wantNames(t, err, "acquire", redlock.ErrHeld, "y")
		wantStored(t, s, 0, "x")
		free(t, held)
		wantStored(t, s, 0, "x", "y")
	})
	for after := range 40 {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, 3, nil)
			for _, n := range s.Nodes {
				n.Delay(time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*250*time.Microsecond)
			defer cancel()
			set, err := lk.AcquireAll(ctx, []string{"x", "y", "z"}, nil)
			if err == nil {
				err = set.Release(t.Context())
			} else if set != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("cancelled after %d/4 ms: %v, %v", after, set, err)
			}
			time.Sleep(10 * time.Millisecond) // what is undone in the background
			wantStored(t, s, 0, "x", "y", "z")
			if t.Failed() {
				t.Logf("cancelled after %d/4 ms: %v", after, err)
			}
		})
	}
}

// TestB15 (b): two callers who name the same in opposite order.
func TestB15OppositeOrdersDoNotBlockEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		for _, n := range s.Nodes { // so that one can come between the other's two names
			n.Delay(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i, names := range [][]string{{"x", "y"}, {"y", "x"}} {
			lk := []*redlock.Locker{lk, s.Open(t, nil)}[i]
			wg.Go(func() {
				for count := 0; ; count++ {
					wait, cancel := context.WithTimeout(ctx, 20*time.Second)
					set, err := lk.AcquireAll(wait, names, nil)
					cancel()
					if err != nil {
						if ctx.Err() == nil || count < 100 {
							t.Errorf("%q: stalled after %d: %v", names, count, err)
						}
						return
					}
					time.Sleep(5 * time.Millisecond)
					if err := set.Release(t.Context()); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(rand.Int64N(int64(40 * time.Millisecond)))) // let the other one in
				}
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Millisecond) // what is undone in the background
		wantStored(t, s, 0, "x", "y")
	})
}

// checker watches who believes to hold which names.
type checker struct {
	t      *testing.T
	mu     sync.Mutex
	holder map[string]int
	last   map[string]fence.Token
}

func (c *checker) enter(worker int, set *redlock.Leases) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range set.Names() {
		if other, held := c.holder[name]; held {
			c.t.Errorf("%q is held by %d and %d", name, other, worker)
		}
		c.holder[name] = worker
		if token := set.Token(name); token <= c.last[name] {
			c.t.Errorf("%q: token %v after %v", name, token, c.last[name])
		}
		c.last[name] = set.Token(name)
	}
}

func (c *checker) leave(set *redlock.Leases) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range set.Names() {
		delete(c.holder, name)
	}
}

// TestRandomSetsThatOverlap: each name has one holder at a time, nobody waits
// for ever, and who fails has taken nothing.
func TestRandomSetsThatOverlap(t *testing.T) {
	const workers, rounds = 8, 30
	all := []string{"a", "b", "c", "d", "e"}
	synctest.Test(t, func(t *testing.T) {
		_, s := locktest.New(t, 3, nil)
		for i, n := range s.Nodes { // so that votes split
			n.Delay(time.Duration(i+1) * time.Millisecond)
		}
		c := &checker{t: t, holder: map[string]int{}, last: map[string]fence.Token{}}
		var mu sync.Mutex
		count := map[string]int{}
		var wg sync.WaitGroup
		for worker := range workers {
			lk := s.Open(t, nil)
			r := rand.New(rand.NewPCG(15, uint64(worker)))
			wg.Go(func() {
				for range rounds {
					var names []string
					for range 1 + r.IntN(4) {
						names = append(names, all[r.IntN(len(all))])
					}
					wait := []time.Duration{0, 0, redlock.NoWait, 20 * time.Millisecond}[r.IntN(4)]
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					set, err := lk.AcquireAll(ctx, names, &redlock.AcquireOptions{Wait: wait})
					cancel()
					outcome := "held"
					if err != nil {
						outcome = "failed"
						if wait == 0 || !errors.Is(err, redlock.ErrHeld) && !errors.Is(err, redlock.ErrNoQuorum) {
							t.Errorf("%q, wait %v: %v", names, wait, err)
						}
					} else {
						slices.Sort(names)
						if want := slices.Compact(names); !slices.Equal(set.Names(), want) {
							t.Errorf("asked for %q, holds %q", want, set.Names())
						}
						c.enter(worker, set)
						time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
						c.leave(set)
						if err := set.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
					mu.Lock()
					count[outcome]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second) // what is undone in the background
		wantStored(t, s, 0, all...)
		if count["held"] == 0 || count["failed"] == 0 {
			t.Errorf("outcomes: %v", count)
		}
	})
}

func TestBadSetsAreRefusedBeforeAnyIO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		many := make([]string, 1025)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for _, n := range s.Nodes { // nothing that is sent would come back
			n.Freeze()
		}
		begin := time.Now()
		for what, names := range map[string][]string{
			"none": nil, "empty": {"a", ""}, "long": {"a", strings.Repeat("x", 513)},
			"in the namespace": {"a", "redlock:x"}, "too many": many,
		} {
			if set, err := lk.AcquireAll(t.Context(), names, nil); set != nil || !errors.Is(err, redlock.ErrBadOption) {
				t.Errorf("%s: %v, %v", what, set, err)
			}
		}
		o := &redlock.AcquireOptions{TTL: time.Hour}
		if set, err := lk.AcquireAll(t.Context(), []string{"a", "b"}, o); set != nil || !errors.Is(err, redlock.ErrBadOption) {
			t.Errorf("TTL: %v, %v", set, err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("took %v: something was sent", took)
		}
		for _, n := range s.Nodes {
			n.Thaw()
		}
		names := append(many[1:], many[1:]...) // the most, each twice
		free := acquireAll(t, lk, nil, names...)
		if err := free.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestASetThatDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		acquire(t, s.Open(t, nil), "b", nil)
		set, err := lk.AcquireAll(t.Context(), []string{"a", "b", "c"}, &redlock.AcquireOptions{Wait: redlock.NoWait})
		if set != nil {
			t.Fatalf("%v, %v", set, err)
		}
		wantNames(t, err, "acquire", redlock.ErrHeld, "b")
		wantStored(t, s, 0, "a", "c")
	})
}

// TestTheWaitIsForTheWholeSet: a second name has what the first has left. If that
// is nothing, it is taken only if it is free.
func TestTheWaitIsForTheWholeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		rival := s.Open(t, nil)
		a := acquire(t, rival, "a", nil)
		b := acquire(t, rival, "b", nil)
		time.AfterFunc(400*time.Millisecond, func() { _ = a.Release(context.Background()) })
		begin := time.Now()
		set, err := lk.AcquireAll(t.Context(), []string{"a", "b"}, &redlock.AcquireOptions{Wait: time.Second})
		if took := time.Since(begin); set != nil || !errors.Is(err, redlock.ErrHeld) || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
		free(t, b)
		slow := openSpy(t, s, &spy{before: func(string) { time.Sleep(time.Second) }})
		o := &redlock.AcquireOptions{Wait: time.Second + time.Millisecond}
		set = acquireAll(t, slow, o, "a", "b", "c")
		if err := set.Release(t.Context()); err != nil {
			t.Error(err)
		}
		acquire(t, rival, "c", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = slow.AcquireAll(ctx, []string{"a", "b", "c"}, o)
		wantNames(t, err, "acquire", redlock.ErrHeld, "c")
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited on: %v", err)
		}
	})
}

// What is left of each is checked when the last one is there.
func TestASetIsReturnedWithTheValidityAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		rival := s.Open(t, nil)
		for wait := time.Second; wait < 15*time.Second; wait += 700 * time.Millisecond {
			held := acquire(t, rival, "b", nil)
			time.AfterFunc(wait, func() { _ = held.Release(context.Background()) })
			set := acquireAll(t, lk, &redlock.AcquireOptions{MinValidity: 9500 * time.Millisecond}, "a", "b")
			if left := time.Until(set.Deadline()); left < 9500*time.Millisecond {
				t.Errorf("waited %v: %v left", wait, left)
			}
			if err := set.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Renewed while it is being taken, and not after.
func TestASetWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		held := acquire(t, s.Open(t, nil), "b", nil)
		time.AfterFunc(30*time.Second, func() { _ = held.Release(context.Background()) })
		set := acquireAll(t, lk, &redlock.AcquireOptions{NoRenew: true}, "a", "b")
		for range 3 {
			time.Sleep(5 * time.Second)
			if err := set.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(set.Deadline()); left < 9*time.Second {
				t.Errorf("%v left after Extend", left)
			}
		}
		begin := time.Now()
		<-set.Context().Done()
		if took := time.Since(begin); took > 10*time.Second || !errors.Is(context.Cause(set.Context()), redlock.ErrLost) {
			t.Errorf("ended after %v with %v", took, context.Cause(set.Context()))
		}
		time.Sleep(time.Second)
		wantStored(t, s, 0, "a", "b")
	})
}

// TestASetIsLostAsOne: the context ends with the first, nothing is given back
// under whoever works, and what is left is not kept up.
func TestASetIsLostAsOne(t *testing.T) {
	for _, gone := range []string{"a", "b", "c"} {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, 3, nil)
			set := acquireAll(t, lk, nil, "a", "b", "c")
			others := slices.DeleteFunc(set.Names(), func(name string) bool { return name == gone })
			deleteEverywhere(s, gone)
			<-set.Context().Done()
			var q *redlock.QuorumError
			if cause := context.Cause(set.Context()); !errors.Is(cause, redlock.ErrLost) || !errors.As(cause, &q) || q.Name != gone {
				t.Errorf("context ended with %v", cause)
			}
			wantStored(t, s, 3, others...)
			if err := set.Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
				t.Errorf("Extend: %v", err)
			}
			time.Sleep(11 * time.Second) // an extension may have been under way
			wantStored(t, s, 0, others...)
			if err := set.Release(t.Context()); !errors.Is(err, redlock.ErrLost) {
				t.Errorf("Release: %v", err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // Release does not wait for the TTL
		lk, s := locktest.New(t, 3, nil)
		set := acquireAll(t, lk, nil, "a", "b", "c")
		deleteEverywhere(s, "b")
		<-set.Context().Done()
		wantNames(t, set.Release(t.Context()), "release", redlock.ErrLost, "b")
		wantStored(t, s, 0, "a", "b", "c")
	})
}

// Extend of a set is of all of them: one that is gone ends the set.
func TestExtendOfASetNamesWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		set := acquireAll(t, lk, &redlock.AcquireOptions{NoRenew: true}, "a", "b", "c")
		deleteEverywhere(s, "b")
		wantNames(t, set.Extend(t.Context()), "extend", redlock.ErrLost, "b")
		if got := context.Cause(set.Context()); !errors.Is(got, redlock.ErrLost) {
			t.Errorf("context ended with %v", got)
		}
	})
}

// TestLossWhileTheNextIsWaitedFor: the error is the loss, not a cancellation
// that the caller knows nothing of.
func TestLossWhileTheNextIsWaitedFor(t *testing.T) {
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, s := locktest.New(t, 3, nil)
			acquire(t, s.Open(t, nil), "b", nil)
			lk := openSpy(t, s, &spy{plainErrors: plain})
			set, err := lk.AcquireAll(t.Context(), []string{"a", "b"}, &redlock.AcquireOptions{
				OnWait: func(redlock.Wait) { deleteEverywhere(s, "a") },
			})
			if set != nil || errors.Is(err, context.Canceled) {
				t.Fatalf("%v, %v", set, err)
			}
			wantNames(t, err, "acquire", redlock.ErrLost, "b", "a")
			if text := err.Error(); strings.Count(text, "lease lost") != 1 || strings.Count(text, `"a"`) != 1 {
				t.Errorf("the loss is not said once: %s", text)
			}
			wantStored(t, s, 0, "a")
			wantStored(t, s, 3, "b")
		})
	}
}

// TestLossWhenTheLastIsTaken: all or none, also when the loss of one is noticed
// in the moment in which the last is granted, or the caller gives up.
func TestLossWhenTheLastIsTaken(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, s := locktest.New(t, 3, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b := &spy{}
			b.before = func(name string) {
				if name != "b" {
					return
				}
				deleteEverywhere(s, "a")
				if err := b.leases[0].Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
					t.Errorf("Extend of what is gone: %v", err)
				}
				if cancelled {
					cancel()
				}
			}
			b.deaf = !cancelled
			set, err := openSpy(t, s, b).AcquireAll(ctx, []string{"a", "b"}, nil)
			if set != nil || errors.Is(err, context.Canceled) != cancelled {
				t.Fatalf("cancelled %v: %v, %v", cancelled, set, err)
			}
			wantNames(t, err, "acquire", redlock.ErrLost, "b", "a")
			wantStored(t, s, 0, "a", "b")
		})
	}
}

func TestMaxHoldOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		held := acquire(t, s.Open(t, nil), "b", nil)
		time.AfterFunc(20*time.Second, func() { _ = held.Release(context.Background()) })
		set := acquireAll(t, lk, &redlock.AcquireOptions{MaxHold: 15 * time.Second}, "a", "b")
		begin := time.Now()
		<-set.Context().Done()
		if took := time.Since(begin); took != 15*time.Second || !errors.Is(context.Cause(set.Context()), redlock.ErrMaxHold) {
			t.Errorf("ended after %v with %v", took, context.Cause(set.Context()))
		}
		wantStored(t, s, 3, "a", "b")
		if err := set.Extend(t.Context()); !errors.Is(err, redlock.ErrMaxHold) {
			t.Errorf("Extend: %v", err)
		}
		time.Sleep(11 * time.Second)
		wantStored(t, s, 0, "a", "b")
	})
}

func TestCloseEndsSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		held := acquireAll(t, lk, nil, "x", "y")
		acquire(t, s.Open(t, nil), "b", nil)
		waiting := make(chan struct{})
		var once sync.Once
		done := make(chan error)
		go func() {
			_, err := lk.AcquireAll(context.Background(), []string{"a", "b"}, &redlock.AcquireOptions{
				OnWait: func(redlock.Wait) { once.Do(func() { close(waiting) }) },
			})
			done <- err
		}()
		<-waiting
		if err := lk.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		err := <-done
		if errors.Is(err, context.Canceled) {
			t.Errorf("%v is the caller's", err)
		}
		wantNames(t, err, "acquire", redlock.ErrClosed, "b")
		if got := context.Cause(held.Context()); !errors.Is(got, redlock.ErrClosed) {
			t.Errorf("the set's context ended with %v", got)
		}
		wantStored(t, s, 0, "a", "x", "y")
		if _, err := lk.AcquireAll(t.Context(), []string{"a"}, nil); !errors.Is(err, redlock.ErrClosed) {
			t.Errorf("AcquireAll of a Locker that is closed: %v", err)
		}
	})
}

// spy is a backend that notes what it is asked, and that can do what is allowed
// to others: give errors without any detail, or not hear the end of a context in
// time.
type spy struct {
	backend.Backend
	plainErrors, deaf bool
	before            func(name string)
	asked             []backend.Request
	leases            []backend.Lease
}

func (s *spy) Acquire(ctx context.Context, r backend.Request) (backend.Lease, error) {
	s.asked = append(s.asked, r)
	if s.before != nil {
		s.before(r.Name)
	}
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	r.Mode = backend.Exclusive
	l, err := s.Backend.Acquire(ctx, r)
	switch {
	case err == nil:
		s.leases = append(s.leases, l)
	case s.plainErrors && ctx.Err() != nil:
		err = ctx.Err()
	case s.plainErrors:
		err = backend.ErrHeld
	}
	return l, err
}

// openSpy returns a Locker over s, with the quorum behind it.
func openSpy(t *testing.T, service *locktest.Service, s *spy) *redlock.Locker {
	var nodes []quorum.Node
	for _, n := range service.Nodes {
		nodes = append(nodes, n.Client())
	}
	b, err := quorum.New(nodes, &quorum.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.Backend = b
	lk, err := redlock.New(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lk.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return lk
}

// TestASetAsksForEachName: in order, with what the options say.
func TestASetAsksForEachName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := locktest.New(t, 3, nil)
		b := &spy{plainErrors: true}
		lk := openSpy(t, s, b)
		o := &redlock.AcquireOptions{Mode: redlock.Shared, Owner: "host a", TTL: 3 * time.Second, MaxAttempts: 7}
		set := acquireAll(t, lk, o, "b", "a")
		for i, name := range []string{"a", "b"} {
			r := b.asked[i]
			if r.Name != name || r.Mode != backend.Shared || r.Owner != o.Owner || r.TTL != o.TTL || r.MaxAttempts != 7 || r.NoWait {
				t.Errorf("asked for %+v", r)
			}
		}
		for range 50 { // each is renewed at times of its own
			time.Sleep(700 * time.Millisecond)
			first, second := b.leases[0].Deadline(), b.leases[1].Deadline()
			if second.Before(first) {
				first = second
			}
			if got := set.Deadline(); !got.Equal(first) {
				t.Errorf("deadline %v, want the earliest, %v", got, first)
			}
		}
		_, err := lk.AcquireAll(t.Context(), []string{"b"}, &redlock.AcquireOptions{Wait: redlock.NoWait})
		if err == nil || err.Error() != `redlock: acquire all: "b": held by another` {
			t.Errorf("an error without a name of its own: %v", err)
		}
		if err := set.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A name of its own has each, and its error says it once.
func TestLeasesErrorSaysEachThingOnce(t *testing.T) {
	err := &redlock.LeasesError{Op: "release", Failed: []redlock.NameError{
		{Name: "a", Err: &redlock.QuorumError{Op: "release", Name: "a", Reasons: []error{redlock.ErrLost}}},
		{Name: "b", Err: redlock.ErrNoQuorum},
	}}
	const want = `redlock: release all: release "a": lease lost; "b": no quorum`
	if err.Error() != want {
		t.Errorf("%s, want %s", err, want)
	}
	var of *redlock.NameError
	if !errors.As(err, &of) || of.Name != "a" || !errors.Is(err, redlock.ErrNoQuorum) {
		t.Errorf("%v: first name %v", err, of)
	}
}

// A key may remain of a name that was taken and could not be given back, although
// nothing remains of the one that it failed for.
func TestMayBeHeldOfASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := locktest.New(t, 3, nil)
		lk := openSpy(t, s, &spy{plainErrors: true})
		acquire(t, s.Open(t, nil), "b", nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := lk.AcquireAll(ctx, []string{"a", "b"}, &redlock.AcquireOptions{OnWait: func(redlock.Wait) {
			wantStored(t, s, 3, "a")
			for _, n := range s.Nodes[1:] {
				n.Freeze()
			}
			cancel()
		}})
		wantNames(t, err, "acquire", context.Canceled, "b", "a")
		if !errors.Is(err, redlock.ErrNoQuorum) || !redlock.MayBeHeld(err) {
			t.Errorf("%v; may be held: %v", err, redlock.MayBeHeld(err))
		}
		for _, n := range s.Nodes[1:] {
			n.Thaw()
		}
		wantStored(t, s, 0, "a")
	})
}
