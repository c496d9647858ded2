package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// The times of the line that docs/protocol.md states.
const (
	// beat is how often a waiter looks whether the name is free: the timer behind
	// whatever was lost.
	beat = time.Second
	// assign is for how long a name is handed over.
	assign = 2 * time.Second
	// lineSlack is what a busy machine may add to a bound made of these.
	lineSlack = time.Second
)

// queue are callers that come to the name x one after the other, hold it for a
// moment each and give it back.
type queue struct {
	ns   *nodes
	hold time.Duration
	tenures
	wg   sync.WaitGroup
	came []string
}

// join has one more come, and returns when n stand in line on each of the given nodes.
func (q *queue) join(lk *redlock.Locker, n int, which ...int) {
	q.ns.t.Helper()
	by := fmt.Sprint("caller ", len(q.came)+1)
	q.came = append(q.came, by)
	q.wg.Go(func() {
		l := take(q.ns.t, lk, "x", nil)
		q.work(l, by, q.hold)
		release(q.ns.t, l)
	})
	q.ns.standing(n, which...)
}

// inOrder waits until all have been served, and demands that they were in the order in
// which they came.
func (q *queue) inOrder() {
	q.ns.t.Helper()
	q.wg.Wait()
	q.check(q.ns.t)
	var served []string
	for _, t := range q.all {
		served = append(served, t.by)
	}
	if !slices.Equal(served, q.came) {
		q.ns.t.Errorf("served in the order %q", served)
	}
}

// soonerThan demands that the first was served at most so long after an instant.
func (q *queue) soonerThan(bound time.Duration, after time.Time) {
	q.ns.t.Helper()
	q.wg.Wait()
	took := q.all[0].from.Sub(after)
	q.ns.t.Logf("served after %v", took)
	if took > bound+lineSlack {
		q.ns.t.Errorf("served after %v, bound %v", took, bound)
	}
}

// standing waits until n stand in line for x on each of the given nodes.
func (ns *nodes) standing(n int, which ...int) {
	ns.t.Helper()
	for _, i := range which {
		await.True(ns.t, patience, fmt.Sprintf("%d stand in line on node %d", n, i+1), func() bool {
			stand, err := ns.do(i, "ZCARD", key("x")+":line").AsInt64()
			return err == nil && stand == int64(n)
		})
	}
}

// clean waits until the nodes store no lease and nobody's place, within a bound; and then
// nothing of any name, and nobody is subscribed. That a name rested is noted for as long
// as a place would be kept.
func (ns *nodes) clean(within time.Duration) {
	ns.t.Helper()
	for _, i := range ns.all() {
		await.True(ns.t, within, fmt.Sprintf("node %d stores no lease and nobody's place", i+1), func() bool {
			keys, err := ns.do(i, "KEYS", "redlock:{*").AsStrSlice()
			return err == nil && !slices.ContainsFunc(keys, func(key string) bool { return !strings.HasSuffix(key, ":waiters") })
		})
	}
	own := []string{"redlock:node", "redlock:tokens", "redlock:clock"}
	for _, i := range ns.all() {
		await.True(ns.t, patience, fmt.Sprintf("node %d stores only what is its own", i+1), func() bool {
			keys, err := ns.do(i, "KEYS", "*").AsStrSlice()
			return err == nil && !slices.ContainsFunc(keys, func(key string) bool { return !slices.Contains(own, key) })
		})
		await.True(ns.t, patience, fmt.Sprintf("nobody listens to node %d", i+1), func() bool {
			channels, err := ns.do(i, "PUBSUB", "CHANNELS").AsStrSlice()
			return err == nil && len(channels) == 0
		})
	}
}

// TestSoakRequestsForAGrant: what a grant costs each node does not depend on how many
// wait. A request is a script call. Each waiter sends a heartbeat a second: those share
// calls, and what they cost is left out where commands are compared.
func TestSoakRequestsForAGrant(t *testing.T) {
	t.Parallel()
	crowds := []int{32, 256}
	if os.Getenv("REDLOCK_SOAK") == "1" {
		crowds = []int{32, 128, 512, 2048}
	}
	few := costOfGrants(t, crowds[0])
	for _, crowd := range crowds[1:] {
		c := costOfGrants(t, crowd)
		if c.requests > 2*few.requests || c.commands-perBeat*c.beats > 2*few.commands {
			t.Errorf("a grant with %d waiters costs more than twice of one with %d", crowd, crowds[0])
		}
	}
}

// perBeat is how many commands a heartbeat costs, its share of the call included.
const perBeat = 12

// cost is what a grant costs one node.
type cost struct{ requests, commands, beats float64 }

// costOfGrants measures where so many callers of four clients take one name by turns.
func costOfGrants(t *testing.T, callers int) cost {
	t.Helper()
	const clients, grants = 4, 1000
	ns := start(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var granted atomic.Int64
	var wg sync.WaitGroup
	first := take(t, ns.open(nil), "x", nil)
	for i := range clients {
		lk := ns.open(nil)
		for range callers / clients {
			wg.Go(func() {
				for {
					l, err := lk.Acquire(ctx, "x", nil)
					if err != nil {
						is(t, err, []error{context.Canceled})
						return
					}
					granted.Add(1)
					release(t, l)
				}
			})
		}
		ns.standing((i+1)*callers/clients, ns.all()...)
	}
	release(t, first)
	count := func() (grants, requests, commands int) {
		for _, i := range ns.all() {
			requests += ns.calls(i, "evalsha")
			_, text, _ := strings.Cut(ns.text(i, "INFO", "stats"), "total_commands_processed:")
			digits, _, _ := strings.Cut(text, "\r\n")
			n, err := strconv.Atoi(digits)
			if err != nil {
				t.Fatal(err)
			}
			commands += n
		}
		return int(granted.Load()), requests, commands
	}
	await.True(t, patience, "they take turns", func() bool { return granted.Load() > grants/10 })
	began := time.Now()
	g, r, c := count()
	await.True(t, time.Minute, "many grants", func() bool { return granted.Load() > int64(g+grants) })
	g2, r2, c2 := count()
	took := time.Since(began)
	cancel()
	wg.Wait()
	n := float64(g2 - g)
	per := cost{float64(r2-r) / n / 5, float64(c2-c) / n / 5, took.Seconds() * float64(callers) / n}
	t.Logf("%4d waiters, %4.0f grants a second: %.1f requests and %.0f commands for a grant on each node, %.1f heartbeats in between",
		callers, n/took.Seconds(), per.requests, per.commands, per.beats)
	return per
}

// TestB99AKilledProcessAtTheHead with 50 waiters costs those behind it nothing.
func TestB99AKilledProcessAtTheHead(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	lk := ns.open(nil)
	first := take(t, lk, "x", nil)
	crowd, _ := ns.spawn(roleCrowd, waitersEnv+"=50")
	ns.standing(50, ns.all()...)
	q := &queue{ns: ns}
	q.join(lk, 51, ns.all()...)
	if err := crowd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = crowd.Wait() // its connections are closed
	released := time.Now()
	release(t, first)
	q.soonerThan(time.Second, released)
	ns.clean(undone)
}

// TestB99AStoppedProcessAtTheHead costs one hand-over, however many wait in it. When it
// goes on, so do they.
func TestB99AStoppedProcessAtTheHead(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	lk := ns.open(nil)
	first := take(t, lk, "x", nil)
	crowd, out := ns.spawn(roleCrowd, waitersEnv+"=50")
	ns.standing(50, ns.all()...)
	q := &queue{ns: ns}
	q.join(lk, 51, ns.all()...)
	if err := crowd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	release(t, first)
	q.soonerThan(assign+beat, released)
	if err := crowd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := line(t, out); got != "served" {
		t.Error(got)
	}
	ns.clean(undone)
}

// TestB99AHolderThatIsKilled, when it has just been handed the name, blocks for its TTL,
// or for what it was handed the name for.
func TestB99AHolderThatIsKilled(t *testing.T) {
	t.Parallel()
	for role, ttl := range map[string]time.Duration{roleHold: time.Second, roleKeep: forgetTTL} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			t.Parallel()
			ns := start(t, 5)
			lk := ns.open(nil)
			first := take(t, lk, "x", nil)
			holder, out := ns.spawn(role)
			ns.standing(1, ns.all()...)
			q := &queue{ns: ns}
			q.join(lk, 2, ns.all()...)
			release(t, first)
			line(t, out) // it has the name
			killed := time.Now()
			if err := holder.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			q.soonerThan(max(ttl, assign)+beat, killed)
		})
	}
}

// TestInOrderWhileNodesAreFrozen, one or two of five, before some come and after.
func TestInOrderWhileNodesAreFrozen(t *testing.T) {
	t.Parallel()
	for frozen := range 3 {
		t.Run(fmt.Sprint(frozen), func(t *testing.T) {
			t.Parallel()
			ns := start(t, 5)
			clients := []*redlock.Locker{ns.open(nil), ns.open(nil), ns.open(nil)}
			for _, lk := range clients {
				warm(t, lk)
			}
			first := take(t, clients[0], "x", nil)
			q := &queue{ns: ns}
			alive := ns.all()[frozen:]
			for i := range 12 {
				if i == 6 {
					ns.freeze(ns.all()[:frozen]...)
				}
				q.join(clients[i%3], i+1, alive...)
			}
			released := time.Now()
			release(t, first)
			q.inOrder()
			t.Logf("%d frozen: twelve hand-overs took %v", frozen, time.Since(released))
			ns.thaw(ns.all()[:frozen]...)
		})
	}
}

// TestAWaiterOnAMinority, which stood at the head and then reaches two of five nodes
// only, withdraws, and costs those behind it one hand-over at most.
func TestAWaiterOnAMinority(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 5)
	var direct []string
	for _, s := range ns.servers {
		direct = append(direct, s.URL())
	}
	options := &redlock.Options{Cluster: "minority"}
	cut, lk := ns.open(options), open(t, direct, options)
	first := take(t, lk, "x", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var gone sync.WaitGroup
	for range 10 {
		gone.Go(func() {
			_, err := cut.Acquire(ctx, "x", nil)
			is(t, err, []error{context.Canceled})
		})
	}
	ns.standing(10, ns.all()...)
	q := &queue{ns: ns}
	q.join(lk, 11, ns.all()...)
	ns.mode(faultproxy.ToServer, faultproxy.Swallow, 0, 1, 2)
	ns.mode(faultproxy.ToClient, faultproxy.Swallow, 0, 1, 2)
	released := time.Now()
	release(t, first)
	q.soonerThan(assign+beat, released)
	ns.standing(0, 3, 4) // they have withdrawn
	cancel()
	gone.Wait()
	ns.mode(faultproxy.ToServer, faultproxy.Pass, 0, 1, 2)
	ns.mode(faultproxy.ToClient, faultproxy.Pass, 0, 1, 2)
	ns.clean(patience)
}

// TestB96ThousandsOfWaitersLeaveNothing, once they are cancelled: no place, no
// subscription, no goroutine.
func TestB96ThousandsOfWaitersLeaveNothing(t *testing.T) {
	const names = 5000
	ns := start(t, 5)
	holder, lk := ns.open(nil), ns.open(nil)
	warm(t, lk)
	held := make([]*redlock.Lease, names)
	inParallel(200, names, func(i int) {
		held[i] = take(t, holder, fmt.Sprint(i), &redlock.AcquireOptions{TTL: longTTL})
	})
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range names {
		wg.Go(func() {
			_, err := lk.Acquire(ctx, fmt.Sprint(i), nil)
			is(t, err, []error{context.Canceled})
		})
	}
	lines := func(i int) int {
		keys, err := ns.do(i, "KEYS", "redlock:{*}:line").AsStrSlice()
		if err != nil {
			t.Error(err)
		}
		return len(keys)
	}
	for _, i := range ns.all() {
		await.True(t, patience, "all stand in line", func() bool { return lines(i) == names })
		if n := strings.Count(ns.text(i, "CLIENT", "LIST", "TYPE", "pubsub"), "\n"); n != 1 {
			t.Errorf("%d subscriptions to node %d", n, i+1)
		}
	}
	cancel()
	wg.Wait()
	for _, i := range ns.all() {
		await.True(t, undone, "none stands in line", func() bool { return lines(i) == 0 })
	}
	inParallel(200, names, func(i int) { release(t, held[i]) })
	ns.clean(undone)
	await.True(t, patience, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// TestB97SubscriptionsCutAnyTime: nobody waits for longer than the timer behind them.
func TestB97SubscriptionsCutAnyTime(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	clients := []*redlock.Locker{ns.open(nil), ns.open(nil)}
	first := take(t, clients[0], "x", nil)
	q := &queue{ns: ns, hold: 10 * time.Millisecond}
	for i := range 40 {
		q.join(clients[i%2], i+1, ns.all()...)
	}
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cut := 0
	cutter.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(50 * time.Millisecond)):
			}
			for _, i := range ns.all() {
				n, err := ns.do(i, "CLIENT", "KILL", "TYPE", "pubsub").AsInt64()
				if err != nil {
					t.Error(err)
				}
				cut += int(n)
			}
		}
	})
	before := time.Now()
	release(t, first)
	q.wg.Wait()
	close(stop)
	cutter.Wait()
	q.check(t)
	longest := time.Duration(0)
	for _, tenure := range q.all {
		longest = max(longest, tenure.from.Sub(before))
		before = tenure.to
	}
	t.Logf("%d subscriptions cut; nobody was served for %v at most", cut, longest)
	if longest > beat+lineSlack {
		t.Errorf("nobody was served for %v", longest)
	}
	ns.clean(undone)
}

// TestB101NeitherReadersNorWritersStarve: one of the other kind is served within the TTL
// of those who come all the time.
func TestB101NeitherReadersNorWritersStarve(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	for _, tt := range []struct {
		name      string
		one, many redlock.Mode
	}{
		{"a writer among readers", redlock.Exclusive, redlock.Shared},
		{"a reader among writers", redlock.Shared, redlock.Exclusive},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 5)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			var served atomic.Int64
			for range 3 {
				lk := ns.open(nil)
				for range 4 {
					wg.Go(func() {
						for {
							l, err := lk.Acquire(ctx, "x", &redlock.AcquireOptions{TTL: ttl, Mode: tt.many})
							if err != nil {
								is(t, err, []error{context.Canceled})
								return
							}
							served.Add(1)
							pass(rand.N(50 * time.Millisecond))
							release(t, l)
						}
					})
				}
			}
			lk := ns.open(nil)
			await.True(t, patience, "they come", func() bool { return served.Load() > 20 })
			longest := time.Duration(0)
			for range 10 {
				began := time.Now()
				l := take(t, lk, "x", &redlock.AcquireOptions{TTL: ttl, Mode: tt.one})
				longest = max(longest, time.Since(began))
				release(t, l)
			}
			cancel()
			wg.Wait()
			t.Logf("served after %v at most; %d of the others were", longest, served.Load())
			if longest > ttl+lineSlack {
				t.Errorf("served after %v", longest)
			}
		})
	}
}

// TestB63CancelledAtAnyMoment of the first two round trips: no lease is without an owner,
// no place without a waiter.
func TestB63CancelledAtAnyMoment(t *testing.T) {
	t.Parallel()
	const calls, callers, names, rtt = 10_000, 20, 20, 10 * time.Millisecond
	ns := startProxied(t, 5)
	clients := []*redlock.Locker{ns.open(nil), ns.open(nil)}
	for _, lk := range clients {
		warm(t, lk)
	}
	ns.delay(rtt, ns.all()...)
	var won, held, neither atomic.Int64
	inParallel(callers, calls, func(i int) {
		ctx, cancel := context.WithCancel(context.Background())
		defer time.AfterFunc(rand.N(2*rtt), cancel).Stop()
		l, err := clients[i%2].Acquire(ctx, fmt.Sprint("x", i%names), &redlock.AcquireOptions{TTL: longTTL})
		switch {
		case err == nil:
			won.Add(1)
			release(t, l)
		case errors.Is(err, redlock.ErrHeld):
			held.Add(1)
		default:
			is(t, err, []error{context.Canceled})
			neither.Add(1)
		}
	})
	t.Logf("%d won, %d waited, %d had not heard", won.Load(), held.Load(), neither.Load())
	if won.Load() == 0 || held.Load() == 0 || neither.Load() == 0 {
		t.Error("always the same")
	}
	ns.clean(undone)
	for i, lk := range clients {
		for n := range names {
			l, err := lk.TryAcquire(t.Context(), fmt.Sprint("x", n), nil)
			if err != nil {
				t.Fatalf("client %d: %v", i+1, err)
			}
			release(t, l)
		}
	}
}
