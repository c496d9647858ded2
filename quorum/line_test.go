package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// street is a set of nodes with processes that wait in line on them.
type street struct {
	t  *testing.T
	ms []*memnode.Node
}

func newStreet(t *testing.T, n int) *street {
	s := &street{t: t}
	for i := range n {
		s.ms = append(s.ms, memnode.New(fmt.Sprint("n", i)))
	}
	b := s.open(nil)
	b.Init(t.Context(), backend.InitOptions{})
	return s
}

// open returns a process, whose nodes wrap may change.
func (s *street) open(wrap func(i int, n *memnode.Client) Node) *Backend {
	s.t.Helper()
	return s.with(&Config{}, wrap)
}

func (s *street) with(c *Config, wrap func(i int, n *memnode.Client) Node) *Backend {
	s.t.Helper()
	nodes := make([]Node, len(s.ms))
	for i, m := range s.ms {
		nodes[i] = m.Client()
		if wrap != nil {
			nodes[i] = wrap(i, m.Client())
		}
	}
	c.Logger = slog.New(slog.DiscardHandler)
	b, err := New(nodes, c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

func (s *street) delay(d time.Duration) {
	for _, m := range s.ms {
		m.Delay(d)
	}
}

// wantNothing waits until the nodes store nothing of any name.
func (s *street) wantNothing(within time.Duration) {
	s.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for i, m := range s.ms {
			for _, key := range m.Keys() {
				if strings.Contains(key, "{") {
					left = append(left, fmt.Sprint("n", i, " ", key))
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("left behind: %q", left)
		}
	}
}

// left is how many waiters and operations a process has.
func left(b *Backend) (lines, busy int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lines), b.busy
}

var ofTenSeconds = backend.Request{Name: "x", TTL: 10 * time.Second}

// take waits for the name.
func (s *street) take(b *Backend, r backend.Request) backend.Lease {
	l, err := b.Acquire(s.t.Context(), r)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	return l
}

// handedOver returns a lease that was waited for.
func (s *street) handedOver(b *Backend) backend.Lease {
	held := s.take(b, ofTenSeconds)
	time.AfterFunc(time.Second, func() { _ = held.Release(context.Background()) })
	return s.take(b, ofTenSeconds)
}

// waiters are callers that come one after the other, hold the name for a while each and
// give it back.
type waiters struct {
	s  *street
	wg sync.WaitGroup

	mu     sync.Mutex
	inside int
	order  []int
	tokens []fence.Token
	at     []time.Time
}

func (q *waiters) wait(i int, b *Backend, hold time.Duration) {
	q.wg.Go(func() {
		l := q.s.take(b, ofTenSeconds)
		if l == nil {
			return
		}
		q.mu.Lock()
		if q.inside++; q.inside > 1 {
			q.s.t.Errorf("waiter %d holds with another", i)
		}
		q.order, q.tokens, q.at = append(q.order, i), append(q.tokens, l.Token()), append(q.at, time.Now())
		q.mu.Unlock()
		time.Sleep(hold)
		q.mu.Lock()
		q.inside--
		q.mu.Unlock()
		if err := l.Release(context.Background()); err != nil {
			q.s.t.Error(err)
		}
	})
	time.Sleep(100 * time.Millisecond) // it stands in line before the next comes
}

// served is how many have held the name.
func (q *waiters) served() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order)
}

// want demands that n waiters were served in the order in which they came.
func (q *waiters) want(n int) {
	q.s.t.Helper()
	q.wg.Wait()
	if !slices.IsSorted(q.order) || len(q.order) != n {
		q.s.t.Errorf("served in the order %v", q.order)
	}
	if !slices.IsSorted(q.tokens) || len(slices.Compact(slices.Clone(q.tokens))) != len(q.tokens) {
		q.s.t.Errorf("tokens %v", q.tokens)
	}
}

func TestB69FirstComeFirstServed(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			s := newStreet(t, n)
			s.delay(time.Millisecond)
			processes := []*Backend{s.open(nil), s.open(nil), s.open(nil)}
			held := s.take(processes[0], ofTenSeconds)
			q := &waiters{s: s}
			for i := range 12 {
				q.wait(i, processes[i%3], time.Millisecond)
			}
			released := time.Now()
			_ = held.Release(t.Context())
			q.want(12)
			if took := time.Since(released); took > 300*time.Millisecond {
				t.Errorf("%d nodes: twelve hand-overs took %v", n, took)
			}
			s.wantNothing(time.Second)
		})
	}
}

// tap is a node of one process that counts what is asked, loses what is pushed, and is
// cut off.
type tap struct {
	*memnode.Client
	t *taps
}

type taps struct {
	mu         sync.Mutex
	asked      map[node.Kind]int
	dropPushes atomic.Bool
	cutOff     atomic.Bool
	opened     atomic.Int64 // subscriptions
	listening  atomic.Int64 // of those, how many last
}

func (ts *taps) wrap(_ int, c *memnode.Client) Node { return tap{c, ts} }

// count is how many operations of a kind were asked for.
func (ts *taps) count(k node.Kind) int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.asked[k]
}

func (x tap) Call(ctx context.Context, c *node.Call) (*node.Reply, error) {
	if x.t.cutOff.Load() {
		return nil, &node.CallError{Err: errors.New("cut off")}
	}
	x.t.mu.Lock()
	for _, op := range c.Ops {
		x.t.asked[op.Kind]++
	}
	x.t.mu.Unlock()
	return x.Client.Call(ctx, c)
}

func (x tap) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	if x.t.cutOff.Load() {
		return node.HelloReply{}, &node.CallError{Err: errors.New("cut off")}
	}
	return x.Client.Hello(ctx, h)
}

func (x tap) Listen(ctx context.Context, keys node.Keyspace, client string, ready func(), got func(node.Push)) error {
	x.t.opened.Add(1)
	x.t.listening.Add(1)
	defer x.t.listening.Add(-1)
	if x.t.cutOff.Load() {
		return &node.CallError{Err: errors.New("cut off")}
	}
	return x.Client.Listen(ctx, keys, client, ready, func(p node.Push) {
		if !x.t.dropPushes.Load() {
			got(p)
		}
	})
}

func newTaps() *taps { return &taps{asked: map[node.Kind]int{}} }

// While it waits a caller sends one heartbeat a second, and it holds as soon as the
// name is given back.
func TestB67HandOverWithoutPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		ts := newTaps()
		b := s.open(ts.wrap)
		held := s.take(s.open(nil), ofTenSeconds)
		time.Sleep(200 * time.Millisecond) // it has all nodes
		q := &waiters{s: s}
		q.wait(0, b, 0)
		time.Sleep(60 * time.Second)
		released := time.Now()
		_ = held.Release(t.Context())
		q.want(1)
		if took := q.at[0].Sub(released); took > time.Millisecond {
			t.Errorf("handed over after %v", took)
		}
		synctest.Wait()
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if ts.asked[node.Acquire] > 3 || ts.asked[node.Wait] < 3*59 || ts.asked[node.Wait] > 3*63 {
			t.Errorf("asked %v, want an acquire and a heartbeat a second on each node", ts.asked)
		}
	})
}

// TestB96FiveThousandWaitersLeaveNothing: a process subscribes once at each node, for
// all its waiters, and that ends when nobody waits.
func TestB96FiveThousandWaitersLeaveNothing(t *testing.T) {
	const names = 5000
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		holder, ts := s.open(nil), newTaps()
		b := s.open(ts.wrap)
		var wg sync.WaitGroup
		leases := make([]backend.Lease, names)
		for i := range names {
			wg.Go(func() { leases[i] = s.take(holder, backend.Request{Name: fmt.Sprint(i), TTL: 30 * time.Second}) })
		}
		wg.Wait()
		time.Sleep(100 * time.Millisecond) // each has all nodes
		ctx, cancel := context.WithCancel(t.Context())
		for i := range names {
			wg.Go(func() {
				_, err := b.Acquire(ctx, backend.Request{Name: fmt.Sprint(i), TTL: 30 * time.Second})
				if !errors.Is(err, context.Canceled) || !errors.Is(err, backend.ErrHeld) {
					t.Error(err)
				}
			})
		}
		time.Sleep(3 * time.Second)
		cancel()
		wg.Wait()
		if got := ts.opened.Load(); got != 3 {
			t.Errorf("%d subscriptions, want one on each node", got)
		}
		for _, l := range leases {
			_ = l.Release(t.Context())
		}
		s.wantNothing(time.Second)
		time.Sleep(lingerOn + 100*time.Millisecond)
		if lines, busy := left(b); lines > 0 || busy > 0 || ts.listening.Load() > 0 {
			t.Errorf("left: %d waiters, %d operations, %d subscriptions", lines, busy, ts.listening.Load())
		}
	})
}

// TestB63CancelledAtAnyMoment: whenever a wait ends, no lease is without an owner and no
// place without a waiter.
func TestB63CancelledAtAnyMoment(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		s.delay(time.Millisecond)
		processes := []*Backend{s.open(nil), s.open(nil)}
		rnd := rand.New(rand.NewPCG(1, 2))
		won, cancelled := 0, 0
		for range rounds {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for i := range 50 {
				name, b := fmt.Sprint("n", i%10), processes[i%2]
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(10_000))*time.Microsecond)
				hold := time.Duration(rnd.IntN(2_000)) * time.Microsecond
				wg.Go(func() {
					defer cancel()
					l, err := b.Acquire(ctx, backend.Request{Name: name, TTL: 10 * time.Second})
					mu.Lock()
					if err == nil {
						won++
					} else {
						cancelled++
					}
					mu.Unlock()
					if err == nil {
						time.Sleep(hold)
						_ = l.Release(context.Background())
					}
				})
			}
			wg.Wait()
			s.wantNothing(time.Second)
		}
		t.Logf("%d won, %d cancelled", won, cancelled)
		if won == 0 || cancelled == 0 {
			t.Error("always the same")
		}
	})
}

// TestB97F59PushesThatGetLost cost no more than the timer behind them.
func TestB97F59PushesThatGetLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		ts := newTaps()
		b := s.open(ts.wrap)
		held := s.take(s.open(nil), ofTenSeconds)
		q := &waiters{s: s}
		for i := range 5 {
			q.wait(i, b, 0)
		}
		ts.dropPushes.Store(true)
		released := time.Now()
		_ = held.Release(t.Context())
		q.want(5)
		if took := time.Since(released); took > 5*1100*time.Millisecond {
			t.Errorf("five hand-overs took %v", took)
		}
	})
}

// TestB97ListenersCutAnyTime: nobody waits for longer than the timer.
func TestB97ListenersCutAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		s.delay(time.Millisecond)
		processes := []*Backend{s.open(nil), s.open(nil)}
		held := s.take(processes[0], ofTenSeconds)
		q := &waiters{s: s}
		for i := range 20 {
			q.wait(i, processes[i%2], 10*time.Millisecond)
		}
		stop := make(chan struct{})
		var cutter sync.WaitGroup
		cutter.Go(func() {
			rnd := rand.New(rand.NewPCG(3, 4))
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rnd.IntN(100)) * time.Millisecond):
					s.ms[rnd.IntN(3)].CutListeners()
				}
			}
		})
		_ = held.Release(t.Context())
		q.wg.Wait()
		close(stop)
		cutter.Wait()
		for i := 1; i < len(q.at); i++ {
			if apart := q.at[i].Sub(q.at[i-1]); apart > 2*time.Second {
				t.Errorf("nobody was served for %v", apart)
			}
		}
		if q.served() != 20 {
			t.Errorf("served: %v", q.order)
		}
		s.wantNothing(10 * time.Second)
	})
}

func TestInOrderWhileNodesAreFrozen(t *testing.T) {
	for frozen := 1; frozen <= 2; frozen++ {
		synctest.Test(t, func(t *testing.T) {
			s := newStreet(t, 5)
			s.delay(time.Millisecond)
			processes := []*Backend{s.open(nil), s.open(nil), s.open(nil)}
			held := s.take(processes[0], ofTenSeconds)
			q := &waiters{s: s}
			for i := range 6 {
				q.wait(i, processes[i%3], time.Millisecond)
			}
			for i := range frozen {
				s.ms[i].Freeze()
			}
			for i := 6; i < 12; i++ {
				q.wait(i, processes[i%3], time.Millisecond)
			}
			released := time.Now()
			_ = held.Release(t.Context())
			q.want(12)
			if took := time.Since(released); took > 2*time.Second {
				t.Errorf("%d frozen: twelve hand-overs took %v", frozen, took)
			}
			for i := range frozen {
				s.ms[i].Thaw()
			}
			s.wantNothing(10 * time.Second)
		})
	}
}

// TestF62AWaiterOnAMinorityWithdraws, and keeps nobody from the name.
func TestF62AWaiterOnAMinorityWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 5)
		ts := newTaps()
		b := s.open(func(i int, c *memnode.Client) Node {
			if i < 3 {
				return ts.wrap(i, c)
			}
			return c
		})
		other := s.open(nil)
		held := s.take(other, ofTenSeconds)
		q := &waiters{s: s}
		go func() { _, _ = b.Acquire(t.Context(), ofTenSeconds) }()
		time.Sleep(100 * time.Millisecond)
		ts.cutOff.Store(true)
		for _, m := range s.ms[:3] {
			m.CutListeners()
		}
		q.wait(1, other, 0)
		released := time.Now()
		_ = held.Release(t.Context())
		q.want(1)
		if took := q.at[0].Sub(released); took > time.Second {
			t.Errorf("served after %v", took)
		}
		time.Sleep(3 * time.Second)
		if lines, _ := left(b); lines > 0 {
			t.Error("still in line")
		}
		s.wantNothing(10 * time.Second)
	})
}

// TestB99F61AProcessAtTheHead dies or stands still, with 50 waiters. One that died is
// passed over at once. One that stands still is heard no more, though its connections
// stand: what it was handed runs out, and costs all its waiters their places at once.
func TestB99F61AProcessAtTheHead(t *testing.T) {
	for _, tt := range []struct {
		what     string
		ends     func(ts *taps, clients []*memnode.Client)
		from, to time.Duration
	}{
		{"killed", func(_ *taps, clients []*memnode.Client) {
			for _, c := range clients {
				_ = c.Close()
			}
		}, 0, 10 * time.Millisecond},
		{"stopped", func(ts *taps, _ []*memnode.Client) {
			ts.dropPushes.Store(true)
			ts.cutOff.Store(true)
		}, lineTimes.Assign, lineTimes.Assign + 1100*time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStreet(t, 3)
			ts := newTaps()
			var clients []*memnode.Client
			doomed := s.open(func(i int, c *memnode.Client) Node {
				clients = append(clients, c)
				return ts.wrap(i, c)
			})
			alive := s.open(nil)
			held := s.take(alive, ofTenSeconds)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 50 {
				go func() { _, _ = doomed.Acquire(ctx, ofTenSeconds) }()
			}
			time.Sleep(500 * time.Millisecond)
			q := &waiters{s: s}
			q.wait(0, alive, 0)
			synctest.Wait()
			tt.ends(ts, clients)
			synctest.Wait()
			released := time.Now()
			_ = held.Release(t.Context())
			q.want(1)
			if took := q.at[0].Sub(released); took < tt.from || took > tt.to {
				t.Errorf("%s: served after %v", tt.what, took)
			}
		})
	}
}

// TestF64AHolderThatDiesBlocksForItsTTL, and the first in line holds within a second.
func TestF64AHolderThatDiesBlocksForItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		died := time.Now()
		s.take(s.open(nil), backend.Request{Name: "x", TTL: 5 * time.Second, NoRenew: true})
		q := &waiters{s: s}
		b := s.open(nil)
		q.wait(0, b, 0)
		q.wait(1, b, 0)
		q.want(2)
		if took := q.at[0].Sub(died); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("served after %v", took)
		}
	})
}

func shared(name string) backend.Request {
	return backend.Request{Name: name, TTL: 10 * time.Second, Mode: backend.Shared}
}

// TestB101ReadersTogetherWritersAlone, in the order in which they came.
func TestB101ReadersTogetherWritersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		b, c := s.open(nil), s.open(nil)
		first, second := s.take(b, shared("x")), s.take(c, shared("x"))
		got := make(chan string, 10)
		leases := make(chan backend.Lease, 10)
		want := func(text string) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			have := ""
			for len(got) > 0 {
				have += <-got
			}
			if have != text {
				t.Errorf("served %q, want %q", have, text)
			}
		}
		come := func(who string, b *Backend, r backend.Request) {
			go func() {
				l := s.take(b, r)
				got <- who
				leases <- l
			}()
			time.Sleep(100 * time.Millisecond)
		}
		come("w", b, ofTenSeconds)
		come("r", c, shared("x"))
		come("r", b, shared("x"))
		want("")
		if _, err := c.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, Mode: backend.Shared, NoWait: true}); !errors.Is(err, backend.ErrHeld) {
			t.Errorf("a reader that does not wait passes a writer that does: %v", err)
		}
		_ = first.Release(t.Context())
		want("")
		_ = second.Release(t.Context())
		want("w")
		_ = (<-leases).Release(t.Context())
		want("rr")
		time.Sleep(30 * time.Second) // they are renewed
		for range 2 {
			if err := (<-leases).Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s.wantNothing(time.Second)
	})
}

// TestASharedLeaseIsResumedAsOne, and shares with those that come later.
func TestASharedLeaseIsResumedAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		b := s.open(nil)
		held := s.take(b, shared("x"))
		time.Sleep(200 * time.Millisecond) // it has all nodes
		handle, err := held.Handle()
		if err != nil {
			t.Fatal(err)
		}
		s.ms[0].Freeze() // which has to be joined later
		l, err := b.Resume(t.Context(), handle, backend.Request{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.ms[0].Thaw()
		time.Sleep(30 * time.Second)
		for _, m := range s.ms {
			if value, _, _ := m.Get("redlock:{x}"); value != node.SharedHolder {
				t.Errorf("stored: %q", value)
			}
		}
		other := shared("x")
		other.NoWait = true
		_ = s.take(b, other).Release(t.Context())
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantNothing(time.Second)
	})
}

// TestTryAcquireDoesNotBarge: who does not wait is refused while somebody does.
func TestTryAcquireDoesNotBarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		s.delay(time.Millisecond)
		b := s.open(nil)
		held := s.take(b, ofTenSeconds)
		q := &waiters{s: s}
		for i := range 5 {
			q.wait(i, b, 5*time.Millisecond)
		}
		_ = held.Release(t.Context())
		rival := s.open(nil)
		for q.served() < 5 {
			_, err := rival.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, NoWait: true})
			if !errors.Is(err, backend.ErrHeld) {
				t.Fatalf("a rival that does not wait: %v", err)
			}
			time.Sleep(time.Millisecond)
		}
		q.want(5)
	})
}

// TestForeignHoldersArePolled: they delete without handing over.
func TestForeignHoldersArePolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &street{t: t}
		for i := range 3 {
			s.ms = append(s.ms, memnode.New(fmt.Sprint("n", i)))
		}
		b := s.with(&Config{PlainKeys: true}, nil)
		b.Init(t.Context(), backend.InitOptions{})
		for _, m := range s.ms {
			m.Set("x", "theirs", time.Minute)
		}
		q := &waiters{s: s}
		q.wait(0, b, 0)
		q.wait(1, b, 0)
		time.Sleep(5 * time.Second)
		deleted := time.Now()
		for _, m := range s.ms {
			m.Delete("x")
		}
		q.want(2)
		if took := q.at[0].Sub(deleted); took > 2*askForeign+20*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}
	})
}

// TestALeaseThatWasHandedOver is returned at once, and extended soon; who wants more
// waits for that.
func TestALeaseThatWasHandedOver(t *testing.T) {
	for _, least := range []time.Duration{0, 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStreet(t, 3)
			s.delay(time.Millisecond)
			b := s.open(nil)
			held := s.take(b, ofTenSeconds)
			time.AfterFunc(5500*time.Millisecond, func() { _ = held.Release(context.Background()) })
			r := ofTenSeconds
			r.MinValidity, r.NoRenew = least, true
			l := s.take(b, r)
			left := time.Until(l.Deadline())
			if handed := left < 2*time.Second; handed != (least == 0) || left < least {
				t.Errorf("returned with %v left, at least %v wanted", left, least)
			}
			time.Sleep(110 * time.Millisecond)
			if left := time.Until(l.Deadline()); left < 9*time.Second {
				t.Errorf("%v left, want all of the TTL", left)
			}
		})
	}
}

// TestAShortHoldIsNotExtended: what was handed over is given back before that is due.
func TestAShortHoldIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		ts := newTaps()
		b := s.open(ts.wrap)
		held := s.take(s.open(nil), ofTenSeconds)
		q := &waiters{s: s}
		for i := range 10 {
			q.wait(i, b, time.Millisecond)
		}
		_ = held.Release(t.Context())
		q.want(10)
		if n := ts.count(node.Extend); n > 0 {
			t.Errorf("extended %d times", n)
		}
		s.wantNothing(10 * time.Second)
	})
}

// TestNobodyTriesBesideOthersInLine: he would only be refused.
func TestNobodyTriesBesideOthersInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		ts := newTaps()
		b := s.open(ts.wrap)
		held := s.take(s.open(nil), ofTenSeconds)
		q := &waiters{s: s}
		q.wait(0, b, 0)
		synctest.Wait()
		tried := ts.count(node.Acquire)
		q.wait(1, b, 0)
		synctest.Wait()
		if n := ts.count(node.Acquire) - tried; n > 0 {
			t.Errorf("asked %d nodes without a line", n)
		}
		if _, err := b.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, NoWait: true}); !errors.Is(err, backend.ErrHeld) {
			t.Errorf("who does not wait: %v", err)
		}
		_ = held.Release(t.Context())
		q.want(2)
		// Nobody is in line any more.
		tried = ts.count(node.Acquire)
		_ = s.take(b, ofTenSeconds).Release(t.Context())
		synctest.Wait()
		if n := ts.count(node.Acquire) - tried; n < 2 {
			t.Errorf("asked %d nodes without a line, want a quorum", n)
		}
	})
}

// TestAHandleOfWhatWasHandedOver is good for the whole TTL.
func TestAHandleOfWhatWasHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		b := s.open(nil)
		handle, err := s.handedOver(b).Handle()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		l, err := s.open(nil).Resume(t.Context(), handle, ofTenSeconds)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Release(t.Context())
	})
}

// TestOnWaitTellsThePosition and who is in the way.
func TestOnWaitTellsThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		b := s.open(nil)
		held := s.take(b, backend.Request{Name: "x", TTL: 10 * time.Second, Owner: "me"})
		q := &waiters{s: s}
		for i := range 3 {
			q.wait(i, b, 2*time.Second)
		}
		var positions []int
		r := ofTenSeconds
		r.OnWait = func(w backend.Wait) {
			if len(positions) == 0 || positions[len(positions)-1] != w.Position {
				positions = append(positions, w.Position)
			}
			if w.Position == 3 && (w.Owner != "me" || w.Remaining == 0 || !errors.Is(w.Err, backend.ErrHeld)) {
				t.Errorf("%+v", w)
			}
		}
		time.AfterFunc(2*time.Second, func() { _ = held.Release(context.Background()) })
		_ = s.take(b, r).Release(t.Context())
		if !slices.Equal(positions, []int{3, 2, 1, 0}) {
			t.Errorf("positions %v", positions)
		}
		q.want(3)
	})
}

// TestAPushOfANodeWithoutAVote does not count, and goes back at once.
func TestAPushOfANodeWithoutAVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		b := s.open(firstFaster)
		held := s.take(s.open(nil), ofTenSeconds)
		q := &waiters{s: s}
		q.wait(0, b, 20*time.Second)
		s.ms[0].ShiftClock(2 * time.Second)
		time.Sleep(1500 * time.Millisecond) // a heartbeat shows it
		_ = held.Release(t.Context())
		time.Sleep(100 * time.Millisecond)
		if _, _, has := s.ms[0].Get("redlock:{x}"); has || q.served() != 1 {
			t.Errorf("served %d, and the node whose clock moved has the name: %v", q.served(), has)
		}
		q.want(1)
	})
}

// TestF15APushOfANodeThatWentBack is asked for once more, and that shows it.
func TestF15APushOfANodeThatWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		b := s.open(firstFaster)
		held := s.take(s.open(nil), ofTenSeconds)
		q := &waiters{s: s}
		q.wait(0, b, 20*time.Second)
		b.peers[0].mu.Lock()
		b.peers[0].counters[node.Shard("x")] = 1 << 52 // as if it had given that out
		b.peers[0].mu.Unlock()
		_ = held.Release(t.Context())
		time.Sleep(100 * time.Millisecond)
		if q.served() != 1 || votes(t, b, 0) || !votes(t, b, 1) {
			t.Errorf("served %d, the node votes: %v", q.served(), votes(t, b, 0))
		}
		q.want(1)
	})
}

// TestAPushThatAnAnswerOvertook is asked for once more, and counts.
func TestAPushThatAnAnswerOvertook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 1)
		b := s.open(func(_ int, c *memnode.Client) Node { return latePushes{c} })
		held := s.take(s.open(nil), ofTenSeconds)
		q := &waiters{s: s}
		q.wait(0, b, 0)
		q.wait(1, b, 0)
		released := time.Now()
		_ = held.Release(t.Context())
		_, _ = b.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, NoWait: true})
		q.want(2)
		if took := q.at[0].Sub(released); took > 20*time.Millisecond || !votes(t, b, 0) {
			t.Errorf("served after %v, the node votes: %v", took, votes(t, b, 0))
		}
	})
}

// firstFaster has pushes of the other nodes come later than those of the first.
func firstFaster(i int, c *memnode.Client) Node {
	if i == 0 {
		return c
	}
	return latePushes{c}
}

// latePushes is a node whose pushes come later than its answers.
type latePushes struct{ *memnode.Client }

func (l latePushes) Listen(ctx context.Context, keys node.Keyspace, client string, ready func(), got func(node.Push)) error {
	return l.Client.Listen(ctx, keys, client, ready, func(p node.Push) {
		time.Sleep(10 * time.Millisecond)
		got(p)
	})
}

// TestWhatComesForAnAttemptThatIsDeadGoesBack, whether its waiter is gone, or holds by
// another one.
func TestWhatComesForAnAttemptThatIsDeadGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		b := s.open(nil)
		lease := s.handedOver(b).(*attempt)
		time.Sleep(200 * time.Millisecond) // it has all nodes
		for _, waiter := range []string{newID(), lease.place.waiter} {
			dead := lease.place.id(99)
			s.ms[0].Set("redlock:{x}", dead+":5", 10*time.Second)
			b.peers[0].pushed(node.Push{Name: "x", Waiter: waiter, ID: dead, Token: 5, Lease: 2000})
			synctest.Wait()
			if value, _, _ := s.ms[0].Get("redlock:{x}"); strings.HasPrefix(value, dead) {
				t.Errorf("still stored: %q", value)
			}
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// overtaken returns a lease that was handed over by answers, and what its nodes have
// pushed, which is still on its way.
func (s *street) overtaken(b *Backend) (l *attempt, late func()) {
	held := s.take(b, ofTenSeconds)
	time.AfterFunc(1500*time.Millisecond, func() { _ = held.Release(context.Background()) })
	l = s.take(b, ofTenSeconds).(*attempt)
	return l, func() {
		for _, p := range b.peers {
			p.pushed(node.Push{Name: "x", Waiter: l.place.waiter, ID: l.id, Token: uint64(l.Token()), Beat: 1, Lease: 2000})
		}
	}
}

// TestAPushThatComesDuringTheRelease has nothing given back beside it, before which the
// release would find no lease, and say that it was lost.
func TestAPushThatComesDuringTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		s.delay(10 * time.Millisecond)
		l, late := s.overtaken(s.open(nil))
		synctest.Wait() // its extension is under way, and the release waits for that
		released := make(chan error)
		go func() { released <- l.Release(t.Context()) }()
		synctest.Wait()
		late()
		if err := <-released; err != nil {
			t.Error(err)
		}
		s.wantNothing(time.Second)
		if lines, _ := left(l.backend); lines > 0 {
			t.Errorf("%d waiters are remembered", lines)
		}
	})
}

// TestAPushForALeaseThatWasMoved does not give it back.
func TestAPushForALeaseThatWasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 3)
		b := s.open(nil)
		l, late := s.overtaken(b)
		time.Sleep(100 * time.Millisecond) // it has all nodes
		handle, err := l.Handle()
		if err != nil {
			t.Fatal(err)
		}
		late()
		synctest.Wait()
		resumed, err := b.Resume(t.Context(), handle, ofTenSeconds)
		if err != nil {
			t.Fatal(err)
		}
		if err := resumed.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(ofTenSeconds.TTL + time.Millisecond)
		if lines, _ := left(b); lines > 0 {
			t.Errorf("%d waiters are remembered", lines)
		}
	})
}

// TestAGiveBackAfterTheWaitEntersNobody: one that is repeated after the wait would keep
// a place for a waiter that is gone.
func TestAGiveBackAfterTheWaitEntersNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 1)
		b := s.open(nil)
		held := s.take(b, ofTenSeconds)
		a := b.standInLine(ofTenSeconds)
		time.Sleep(10 * time.Millisecond)
		a.mu.Lock()
		back := &task{op: a.lineOp(core.LineEffect{Kind: core.GiveBack, Attempt: 7, Beat: 11}, 1), sink: a, timeout: a.timeout}
		a.unlock()
		if a.giveUp() {
			t.Fatal("won")
		}
		time.Sleep(10 * time.Millisecond)
		a.mu.Lock()
		a.enqueue(back)
		a.unlock()
		time.Sleep(10 * time.Millisecond)
		if keys := s.ms[0].Keys(); slices.Contains(keys, b.keys.Line("x")) {
			t.Errorf("somebody stands in line: %q", keys)
		}
		_ = held.Release(t.Context())
		s.wantNothing(time.Second)
	})
}

// TestB71F65SplitVotesAreSettled: whoever comes first at which node, each is served in its
// turn.
func TestB71F65SplitVotesAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, 5)
		var wg sync.WaitGroup
		var served []time.Time
		began := time.Now()
		for i := range 5 {
			b := s.open(func(n int, c *memnode.Client) Node {
				return distant{c, time.Duration((n+i)%5) * time.Millisecond}
			})
			wg.Go(func() {
				for range 10 {
					l := s.take(b, ofTenSeconds)
					served = append(served, time.Now()) // one at a time: it is held
					_ = l.Release(t.Context())
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		s.wantNothing(10 * time.Second) // that votes are to rest is forgotten by itself
		if len(served) != 50 || took > 5*time.Second {
			t.Errorf("%d served in %v", len(served), took)
		}
	})
}

// distant is a node that takes its time, one way.
type distant struct {
	*memnode.Client
	away time.Duration
}

func (d distant) Call(ctx context.Context, c *node.Call) (*node.Reply, error) {
	time.Sleep(d.away)
	return d.Client.Call(ctx, c)
}
