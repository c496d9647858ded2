package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/locktest"
	"example.com/redlock/memnode"
	"example.com/redlock/quorum"
)

// TestB38BadOptionsAreRefusedBeforeAnyIO: the nodes are frozen, so anything
// sent would not come back.
func TestB38BadOptionsAreRefusedBeforeAnyIO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		for _, n := range s.Nodes {
			n.Freeze()
		}
		defer func() {
			for _, n := range s.Nodes {
				n.Thaw()
			}
		}()
		start := time.Now()
		for name, o := range map[string]redlock.AcquireOptions{
			"TTL 1 ns":           {TTL: 1},
			"TTL 500 µs":         {TTL: 500 * time.Microsecond},
			"TTL 19 ms":          {TTL: 19 * time.Millisecond},
			"TTL negative":       {TTL: -time.Second},
			"TTL above max":      {TTL: 31 * time.Second},
			"TTL not whole ms":   {TTL: 1900*time.Microsecond + 100*time.Millisecond},
			"mode":               {Mode: 7},
			"wait negative":      {Wait: -time.Second},
			"attempts negative":  {MaxAttempts: -1},
			"validity negative":  {MinValidity: -1},
			"validity of all":    {MinValidity: 10 * time.Second},
			"validity and drift": {MinValidity: 9900 * time.Millisecond},
			"owner long":         {Owner: strings.Repeat("x", 129)},
			"owner control":      {Owner: "a\nb"},
			"owner not UTF-8":    {Owner: "\xff"},
		} {
			l, err := lk.Acquire(t.Context(), "x", &o)
			if !errors.Is(err, redlock.ErrBadOption) || l != nil {
				t.Errorf("%s: %v, %v", name, l, err)
			}
		}
		for name, o := range map[string]string{
			"empty": "", "long": strings.Repeat("x", 513), "in the namespace": "redlock:x",
		} {
			if l, err := lk.TryAcquire(t.Context(), o, nil); !errors.Is(err, redlock.ErrBadOption) || l != nil {
				t.Errorf("name %s: %v, %v", name, l, err)
			}
			if _, err := lk.Inspect(t.Context(), o); !errors.Is(err, redlock.ErrBadOption) {
				t.Errorf("inspect name %s: %v", name, err)
			}
			if err := lk.Break(t.Context(), o, nil); !errors.Is(err, redlock.ErrBadOption) {
				t.Errorf("break name %s: %v", name, err)
			}
		}
		for _, handle := range []string{"", "x", "rl1.", "rl1.e30", "rl1.!!"} {
			if _, err := lk.Resume(t.Context(), handle, nil); !errors.Is(err, redlock.ErrBadOption) {
				t.Errorf("handle %q: %v", handle, err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v: something was sent", took)
		}
	})
}

func TestOpenRefusesBadOptions(t *testing.T) {
	urls := []string{"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"}
	for name, o := range map[string]redlock.Options{
		"namespace brace":  {Namespace: "a{b"},
		"namespace space":  {Namespace: "a b"},
		"namespace long":   {Namespace: strings.Repeat("n", 65)},
		"cluster bar":      {Cluster: "a|b"},
		"TTL above max":    {TTL: time.Minute},
		"max TTL small":    {MaxTTL: time.Second},
		"max TTL large":    {MaxTTL: 25 * time.Hour},
		"quorum minority":  {Quorum: 1},
		"quorum above N":   {Quorum: 4},
		"quorum negative":  {Quorum: -1},
		"timeout negative": {NodeTimeout: -1},
		"timeout long":     {NodeTimeout: 20 * time.Second},
		"connect negative": {ConnectWait: -1},
		"drift negative":   {DriftRate: -0.1},
		"drift large":      {DriftRate: 0.5},
		"drift NaN":        {DriftRate: math.NaN()},
		"floor negative":   {DriftFloor: -1},
	} {
		if lk, err := redlock.Open(t.Context(), urls, &o); !errors.Is(err, redlock.ErrBadOption) || lk != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, urls := range map[string][]string{
		"none": nil, "no URL": {"::"}, "twice": {"redis://a:6379", "redis://b", "redis://A"},
	} {
		if lk, err := redlock.Open(t.Context(), urls, nil); !errors.Is(err, redlock.ErrBadOption) || lk != nil {
			t.Errorf("nodes %s: %v", name, err)
		}
	}
	b, err := quorum.New([]quorum.Node{memnode.New("a")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lk, err := redlock.New(b, &redlock.Options{Quorum: 1}); !errors.Is(err, redlock.ErrBadOption) || lk != nil {
		t.Errorf("New with a backend's option: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestB60EachEndOfAWaitHasItsOwnError: the caller's context and what stood in
// the way are told apart, and both are there.
func TestB60EachEndOfAWaitHasItsOwnError(t *testing.T) {
	cause := errors.New("the caller's own cause")
	for name, c := range map[string]struct {
		end     func(context.Context) (context.Context, context.CancelFunc)
		o       redlock.AcquireOptions
		frozen  bool
		is, not []error
		after   time.Duration
	}{
		"cancelled": {
			end: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(5*time.Second, func() { cancel(cause) })
				return ctx, func() { cancel(nil) }
			},
			is: []error{context.Canceled, cause, redlock.ErrHeld}, not: []error{context.DeadlineExceeded},
			after: 5 * time.Second,
		},
		"deadline": {
			end: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 5*time.Second)
			},
			is: []error{context.DeadlineExceeded, redlock.ErrHeld}, not: []error{context.Canceled},
			after: 5 * time.Second,
		},
		"wait": {
			o:  redlock.AcquireOptions{Wait: 250 * time.Millisecond},
			is: []error{redlock.ErrHeld}, not: []error{context.DeadlineExceeded, redlock.ErrNoQuorum},
			after: 250 * time.Millisecond,
		},
		"attempts": {
			o:  redlock.AcquireOptions{MaxAttempts: 1},
			is: []error{redlock.ErrHeld}, not: []error{context.DeadlineExceeded},
		},
		"no wait": {
			o:  redlock.AcquireOptions{Wait: redlock.NoWait},
			is: []error{redlock.ErrHeld}, not: []error{context.DeadlineExceeded},
		},
		"outage": {
			frozen: true,
			is:     []error{redlock.ErrNoQuorum}, not: []error{context.DeadlineExceeded, redlock.ErrHeld},
			after: 10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lk, s := locktest.New(t, 3, nil)
				acquire(t, s.Open(t, nil), "x", nil)
				ctx, cancel := t.Context(), func() {}
				if c.end != nil {
					ctx, cancel = c.end(ctx)
				}
				defer cancel()
				if c.frozen {
					for _, n := range s.Nodes {
						n.Freeze()
						defer n.Thaw()
					}
				}
				start := time.Now()
				l, err := lk.Acquire(ctx, "x", &c.o)
				if l != nil || err == nil {
					t.Fatalf("%v, %v", l, err)
				}
				for _, want := range c.is {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				for _, other := range c.not {
					if errors.Is(err, other) {
						t.Errorf("%v is %v", err, other)
					}
				}
				if took := time.Since(start); took < c.after || took > c.after+500*time.Millisecond {
					t.Errorf("took %v, want %v", took, c.after)
				}
			})
		})
	}
}

// TestB62TheLastPauseIsCutShort: a wait ends when it was to end, at whatever
// phase of the polling.
func TestB62TheLastPauseIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		acquire(t, s.Open(t, nil), "x", nil)
		for wait := 50 * time.Millisecond; wait < 10*time.Second; wait = wait * 13 / 10 {
			start := time.Now()
			_, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: wait})
			if took := time.Since(start); !errors.Is(err, redlock.ErrHeld) || took != wait {
				t.Errorf("wait %v: %v after %v", wait, err, took)
			}
		}
	})
}

// TestB62WithoutAWaitForEver: a caller that does not bound its wait waits as long as it
// takes.
func TestB62WithoutAWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		held := acquire(t, s.Open(t, nil), "x", nil)
		const whole = 20 * time.Hour
		start := time.Now()
		time.AfterFunc(whole, func() { _ = held.Release(context.Background()) })
		l := acquire(t, lk, "x", nil)
		if took := time.Since(start); took < whole || took > whole+time.Second {
			t.Errorf("waited for %v", took)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestB22WaitAndTTLAreIndependent: whatever the two are, there is one holder.
func TestB22WaitAndTTLAreIndependent(t *testing.T) {
	for _, ttl := range []time.Duration{20 * time.Millisecond, time.Second, 30 * time.Second} {
		for _, wait := range []time.Duration{redlock.NoWait, 0, time.Millisecond, ttl / 2, 2 * ttl} {
			synctest.Test(t, func(t *testing.T) {
				lk, _ := locktest.New(t, 3, nil)
				var (
					wg     sync.WaitGroup
					mu     sync.Mutex
					inside int
				)
				for range 4 {
					wg.Go(func() {
						for range 10 {
							l, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{TTL: ttl, Wait: wait})
							if err != nil {
								if !errors.Is(err, redlock.ErrHeld) && !errors.Is(err, redlock.ErrNoQuorum) {
									t.Errorf("TTL %v, wait %v: %v", ttl, wait, err)
								}
								continue
							}
							mu.Lock()
							if inside++; inside > 1 {
								t.Errorf("TTL %v, wait %v: two holders", ttl, wait)
							}
							mu.Unlock()
							time.Sleep(ttl / 4)
							mu.Lock()
							inside--
							mu.Unlock()
							if err := l.Release(t.Context()); err != nil {
								t.Errorf("TTL %v, wait %v: release: %v", ttl, wait, err)
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

func TestOneOfManyThatTryAtOnceWins(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			_, s := locktest.New(t, n, nil)
			for i, node := range s.Nodes { // so that votes split
				node.Delay(time.Duration(i+1) * time.Millisecond)
			}
			for round := range 20 {
				var wg sync.WaitGroup
				var mu sync.Mutex
				won := 0
				for range 5 {
					lk := s.Open(t, nil)
					wg.Go(func() {
						_, err := lk.TryAcquire(t.Context(), fmt.Sprint("x", round), nil)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err == nil:
							won++
						case !errors.Is(err, redlock.ErrHeld):
							t.Errorf("%d nodes, round %d: %v", n, round, err)
						}
					})
				}
				wg.Wait()
				if won != 1 {
					t.Errorf("%d nodes, round %d: %d won", n, round, won)
				}
			}
		})
	}
}

func TestWaitIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		acquire(t, s.Open(t, nil), "x", &redlock.AcquireOptions{Owner: "host a, pid 7", TTL: 20 * time.Second})
		var waits []redlock.Wait
		_, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{
			Wait: time.Second, OnWait: func(w redlock.Wait) { waits = append(waits, w) },
		})
		if !errors.Is(err, redlock.ErrHeld) || len(waits) == 0 {
			t.Fatalf("%v after %d waits", err, len(waits))
		}
		w := waits[0]
		if w.Owner != "host a, pid 7" || w.Attempts != 1 || w.Remaining < 13*time.Second || !errors.Is(w.Err, redlock.ErrHeld) {
			t.Errorf("%+v", w)
		}
	})
}

// TestB86TakenAndDownAreToldApart shows every mixture in the error.
func TestB86TakenAndDownAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 5, &redlock.Options{ConnectWait: time.Second})
		for _, n := range s.Nodes[:2] {
			n.Set("redlock:{x}", "0123456789abcdef0123456789abcdef:9 somebody", time.Minute)
		}
		for _, n := range s.Nodes[3:] {
			n.Down(true)
			defer n.Down(false)
		}
		_, err := lk.TryAcquire(t.Context(), "x", nil)
		if !errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrHeld) {
			t.Fatal(err)
		}
		var q *redlock.QuorumError
		if !errors.As(err, &q) || len(q.Votes) != 5 || q.Need != 3 {
			t.Fatalf("%#v", err)
		}
		want := []string{"refused", "refused", "granted", "failed", "failed"}
		for i, v := range q.Votes {
			if string(v.Outcome) != want[i] {
				t.Errorf("vote %d: %v, want %s", i, v, want[i])
			}
		}
		if q.Votes[0].Owner != "somebody" || !errors.Is(q.Votes[4].Err, memnode.ErrDown) {
			t.Errorf("votes: %v", q.Votes)
		}
		for _, word := range []string{`"x"`, "node1 refused", `"somebody"`, "node5 failed", "need 3"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q is not in %q", word, err)
			}
		}
	})
}

// TestClientsThatDifferAreRefused: whoever comes second, with another quorum,
// MaxTTL, kind of keys or set of nodes.
func TestClientsThatDifferAreRefused(t *testing.T) {
	for field, o := range map[string]redlock.Options{
		"quorum":     {Quorum: 3},
		"max TTL":    {MaxTTL: 20 * time.Second},
		"plain keys": {PlainKeys: true},
		"members":    {Cluster: "other"},
	} {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, 3, nil)
			acquire(t, lk, "x", nil)
			start := time.Now()
			_, err := s.Open(t, &o).Acquire(t.Context(), "x", nil)
			if !errors.Is(err, redlock.ErrMismatch) || !strings.Contains(err.Error(), field) {
				t.Errorf("%s: %v", field, err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("%s: refused only after %v", field, took)
			}
		})
	}
}

// TestOneNodeOfAnotherServiceFailsTheRound: X lists {1,2,3}, Y lists {3,4,5};
// Y has a majority in {4,5} that shares no node with X's {1,2}.
func TestOneNodeOfAnotherServiceFailsTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, x := locktest.New(t, 3, nil)
		y := &locktest.Service{Nodes: []*memnode.Node{x.Nodes[2], memnode.New("node4"), memnode.New("node5")}}
		xl, yl := x.Open(t, nil), y.Open(t, nil)
		if _, err := yl.Init(t.Context(), nil); !errors.Is(err, redlock.ErrMismatch) {
			t.Errorf("init of Y: %v", err)
		}
		acquire(t, xl, "x", nil)
		synctest.Wait()
		if _, err := yl.Acquire(t.Context(), "x", nil); !errors.Is(err, redlock.ErrMismatch) {
			t.Errorf("Y: %v", err)
		}
	})
}

func TestForeignKeysAreNeverTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, nil)
		for _, n := range s.Nodes {
			n.Set("redlock:{x}", "somebody's data", 0)
		}
		if _, err := lk.Acquire(t.Context(), "x", nil); !errors.Is(err, redlock.ErrForeignKey) {
			t.Errorf("Acquire: %v", err)
		}
		if err := lk.Break(t.Context(), "x", &redlock.BreakOptions{Now: true}); !errors.Is(err, redlock.ErrForeignKey) {
			t.Errorf("Break: %v", err)
		}
		for _, n := range s.Nodes {
			if v, ttl, _ := n.Get("redlock:{x}"); v != "somebody's data" || ttl != 0 {
				t.Errorf("now %q, %v", v, ttl)
			}
		}
	})
}

// A foreign client's lock with plain keys is a lock like any other.
func TestForeignLocksAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 3, &redlock.Options{PlainKeys: true})
		for _, n := range s.Nodes {
			n.Set("x", "bG9jaw==", 4*time.Second)
		}
		if _, err := lk.TryAcquire(t.Context(), "x", nil); !errors.Is(err, redlock.ErrHeld) {
			t.Errorf("TryAcquire: %v", err)
		}
		start := time.Now()
		acquire(t, lk, "x", nil)
		if took := time.Since(start); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("won after %v, want when the other's time was over", took)
		}
	})
}

// TestAllNodesRestart: nobody gets a name until one quarantine is over, and
// who holds one keeps it.
func TestAllNodesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		count := map[redlock.EventKind]int{}
		lk, s := locktest.New(t, 3, &redlock.Options{Observer: func(e redlock.Event) {
			mu.Lock()
			count[e.Kind]++
			mu.Unlock()
		}})
		x := acquire(t, lk, "x", nil)
		for _, n := range s.Nodes {
			n.Restart(true)
		}
		begin := time.Now()
		y := acquire(t, lk, "y", nil)
		// The longest lease, 1 % for clocks, and half of it for attempts.
		const q = 45300 * time.Millisecond
		if took := time.Since(begin); took < q || took > q+2*time.Second {
			t.Errorf("the service is back after %v, want %v", took, q)
		}
		if x.Context().Err() != nil {
			t.Errorf("the holder lost its lease: %v", context.Cause(x.Context()))
		}
		if y.Token() <= x.Token() || !y.TokenByClock() || x.TokenByClock() {
			t.Errorf("tokens %v and %v, by clock %v, %v", x.Token(), y.Token(), x.TokenByClock(), y.TokenByClock())
		}
		time.Sleep(q) // the third node may have been asked later
		mu.Lock()
		defer mu.Unlock()
		if count[redlock.EventNodeQuarantined] != 3 || count[redlock.EventNodeLifted] != 3 {
			t.Errorf("events: %v", count)
		}
	})
}

// TestALostAttemptLeavesNothing: votes go back, on every node that was
// asked, whatever it answered.
func TestALostAttemptLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 5, nil)
		acquire(t, lk, "other", nil)
		synctest.Wait() // all nodes know us
		for _, n := range s.Nodes[2:] {
			n.Freeze()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := lk.Acquire(ctx, "x", &redlock.AcquireOptions{TTL: 30 * time.Second})
		if !errors.Is(err, context.DeadlineExceeded) || !redlock.MayBeHeld(err) {
			t.Errorf("%v; may be held: %v", err, redlock.MayBeHeld(err))
		}
		time.Sleep(100 * time.Millisecond)
		if got := stored(s, "x"); got != 0 {
			t.Errorf("%d live nodes still store it", got)
		}
		for _, n := range s.Nodes[2:] {
			n.Thaw()
		}
		time.Sleep(100 * time.Millisecond)
		if got := stored(s, "x"); got != 0 {
			t.Errorf("%d nodes store it after the thaw", got)
		}
	})
}
