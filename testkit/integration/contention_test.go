package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
)

// tenure is how long somebody believed to hold a name: from the return of
// Acquire to the earliest of the call of Release, the end of the lease's
// context, and the deadline.
type tenure struct {
	from, to time.Time
	token    uint64
	by       string
}

// tenures collects those of one name.
type tenures struct {
	mu  sync.Mutex
	all []tenure
}

// work holds l for a while, or until it ends, and notes it.
func (ts *tenures) work(l *redlock.Lease, by string, d time.Duration) {
	from := time.Now()
	select {
	case <-time.After(d):
	case <-l.Context().Done():
	}
	to := time.Now()
	if deadline := l.Deadline(); deadline.Before(to) {
		to = deadline
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.all = append(ts.all, tenure{from, to, uint64(l.Token()), by})
}

// check fails if two overlap or their tokens are out of order.
func (ts *tenures) check(t testing.TB) {
	t.Helper()
	slices.SortFunc(ts.all, func(a, b tenure) int { return a.from.Compare(b.from) })
	for i := 1; i < len(ts.all); i++ {
		before, after := ts.all[i-1], ts.all[i]
		if after.from.Before(before.to) {
			t.Errorf("two holders for %v: %s and %s", before.to.Sub(after.from), before.by, after.by)
		}
		if after.token <= before.token {
			t.Errorf("token %d of %s after %d of %s", after.token, after.by, before.token, before.by)
		}
	}
}

// TestB22NeverTwoHolders goes over the combinations of wait, TTL and renewal, which
// contend for names with each other.
func TestB22NeverTwoHolders(t *testing.T) {
	t.Parallel()
	const short, names = 100 * time.Millisecond, 5
	ns := start(t, 3)
	var held [names]tenures
	var mu sync.Mutex
	got := map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	contend := func(lk *redlock.Locker, name int, by string, o redlock.AcquireOptions) {
		for ctx.Err() == nil {
			l, err := lk.Acquire(ctx, fmt.Sprint("x", name), &o)
			if err != nil {
				is(t, err, nil, redlock.ErrBadOption, redlock.ErrMismatch, redlock.ErrUnfit)
				pass(5 * time.Millisecond) // as a caller does that comes again
				continue
			}
			held[name].work(l, by, max(o.TTL, short)/10)
			mu.Lock()
			got[by]++
			mu.Unlock()
			if err := l.Release(ctx); err != nil && !errors.Is(err, redlock.ErrLost) && !errors.Is(err, redlock.ErrNoQuorum) {
				t.Error(err)
			}
		}
	}
	var wg sync.WaitGroup
	combinations := 0
	for _, wait := range []time.Duration{redlock.NoWait, 0, time.Millisecond, short / 2, 2 * short} {
		for _, ttl := range []time.Duration{0, 20 * time.Millisecond, short} {
			for _, once := range []bool{false, true} {
				by := fmt.Sprintf("wait %v, TTL %v, no renewal %v", wait, ttl, once)
				name := combinations % names
				combinations++
				lk := ns.open(&redlock.Options{TTL: 3 * short})
				wg.Go(func() {
					contend(lk, name, by, redlock.AcquireOptions{Wait: wait, TTL: ttl, NoRenew: once, MinValidity: ttl / 4})
				})
			}
		}
	}
	wg.Wait()
	total := 0
	for name := range held {
		held[name].check(t)
		total += len(held[name].all)
	}
	t.Logf("%d tenures; of %d combinations, %d had one", total, combinations, len(got))
	if total < 100 || len(got) < combinations/2 {
		t.Errorf("too few tenures to tell: %v", got)
	}
	ns.empty(undone, ns.all()...)
}

// TestB68AnswersByState.
func TestB68AnswersByState(t *testing.T) {
	t.Parallel()
	const occupied = 500 * time.Millisecond
	for _, tt := range []struct {
		name        string
		taken, down []int
		try         error // nil: gets the lease at once
		lock        error // nil: gets the lease, after the holder if need be
	}{
		{"free", nil, nil, nil, nil},
		{"taken on some", []int{0, 1}, nil, nil, nil},
		{"taken on a quorum", []int{0, 1, 2}, nil, redlock.ErrHeld, nil},
		{"taken on all", []int{0, 1, 2, 3, 4}, nil, redlock.ErrHeld, nil},
		{"down on some", nil, []int{3, 4}, nil, nil},
		{"taken on the others that are not down", []int{0, 1, 2}, []int{3, 4}, redlock.ErrHeld, nil},
		{"taken on all but one that is down", []int{0, 1, 2, 3}, []int{4}, redlock.ErrHeld, nil},
		{"down on most", nil, []int{2, 3, 4}, redlock.ErrNoQuorum, redlock.ErrNoQuorum},
		{"down on all", nil, []int{0, 1, 2, 3, 4}, redlock.ErrNoQuorum, redlock.ErrNoQuorum},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 5)
			lk := ns.open(&redlock.Options{ConnectWait: 500 * time.Millisecond})
			ns.kill(tt.down...)
			for round := range 20 {
				name := fmt.Sprint("try", round)
				ns.occupy(name, "e", time.Minute, tt.taken...)
				expect(t, tt.try, func() (*redlock.Lease, error) { return lk.TryAcquire(t.Context(), name, nil) })
				if errors.Is(tt.try, redlock.ErrNoQuorum) {
					break // takes the ConnectWait each time
				}
			}
			ns.occupy("lock", "e", occupied, tt.taken...)
			expect(t, tt.lock, func() (*redlock.Lease, error) { return lk.Acquire(t.Context(), "lock", nil) })
		})
	}
}

// expect fails unless acquire gets a lease (want is nil) or the error.
func expect(t testing.TB, want error, acquire func() (*redlock.Lease, error)) {
	t.Helper()
	began := time.Now()
	l, err := acquire()
	if took := time.Since(began); took > time.Second+slack {
		t.Errorf("took %v", took)
	}
	switch {
	case want == nil && err != nil:
		t.Error(err)
	case want == nil:
		release(t, l)
	case err == nil:
		t.Errorf("got a lease, want %v", want)
		release(t, l)
	default:
		for _, other := range []error{redlock.ErrHeld, redlock.ErrNoQuorum} {
			if errors.Is(err, other) != (other == want) {
				t.Errorf("%v, want %q only", err, want)
			}
		}
	}
}

// TestHeldIsToldWhateverTheOrderOfAnswers: with two of five nodes down the
// first refusal decides the round, before the others say who the holder is. The
// caller must hear ErrHeld all the same, and a waiter must go on waiting.
func TestHeldIsToldWhateverTheOrderOfAnswers(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 5)
	holder, lk := ns.open(nil), ns.open(&redlock.Options{ConnectWait: time.Second})
	warm(t, lk)
	l := take(t, holder, "x", &redlock.AcquireOptions{TTL: longTTL, Owner: "holder"})
	ns.delay(40*time.Millisecond, 1, 2)
	ns.kill(3, 4)
	for range 5 {
		_, err := lk.TryAcquire(t.Context(), "x", nil)
		is(t, err, []error{redlock.ErrHeld}, redlock.ErrNoQuorum)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := lk.Acquire(ctx, "x", nil)
	is(t, err, []error{context.DeadlineExceeded, redlock.ErrHeld}, redlock.ErrNoQuorum)
	release(t, l)
}

// TestB70WaitersDoNotStorm: what 50 waiters ask of each node in a second, and what
// it costs their process, stays small.
func TestB70WaitersDoNotStorm(t *testing.T) {
	const waiters, window, perSecond = 50, 4 * time.Second, 10
	ns := start(t, 5)
	lk := ns.open(nil)
	l := take(t, ns.open(nil), "x", nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			_, err := lk.Acquire(ctx, "x", nil)
			is(t, err, []error{context.Canceled, redlock.ErrHeld})
		})
	}
	pass(2 * time.Second)
	var before, after []int
	for _, i := range ns.all() {
		before = append(before, ns.operations(i))
	}
	cpu := cpuTime(t)
	pass(window)
	cpu = cpuTime(t) - cpu
	for _, i := range ns.all() {
		after = append(after, ns.operations(i))
	}
	cancel()
	wg.Wait()
	for _, i := range ns.all() {
		rate := float64(after[i]-before[i]) / window.Seconds() / waiters
		t.Logf("node %d: %.1f operations a second for each waiter", i+1, rate)
		if rate > perSecond {
			t.Errorf("node %d gets %.1f operations a second from each waiter, more than %d", i+1, rate, perSecond)
		}
	}
	if cpu > window/2 {
		t.Errorf("waiting cost %v of processor time in %v", cpu, window)
	}
	t.Logf("processor time: %v in %v", cpu, window)
	release(t, l)
}

// operations is how many operations on leases node i has carried out: each
// acquire is one SET, each release that follows one GET; scripts are counted
// too, as what goes over the wire.
func (ns *nodes) operations(i int) int {
	ns.t.Helper()
	return max(2*ns.calls(i, "set"), ns.scripts(i))
}

// scripts is how many scripts node i has run.
func (ns *nodes) scripts(i int) int { return ns.calls(i, "evalsha") + ns.calls(i, "eval") }

// calls is how often node i has carried out a command, in a script or not.
func (ns *nodes) calls(i int, command string) int {
	ns.t.Helper()
	_, rest, found := strings.Cut(ns.text(i, "INFO", "commandstats"), "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(digits)
	if err != nil {
		ns.t.Fatal(err)
	}
	return n
}

// cpuTime is what this process has used so far.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestB71AHerdIsServed: clients that start at the same instant split the votes at
// first, and yet one of them wins soon, and all of them in the end.
func TestB71AHerdIsServed(t *testing.T) {
	t.Parallel()
	const clients = 20
	ns := startProxied(t, 3)
	var lockers []*redlock.Locker
	for range clients {
		lk := ns.open(nil)
		warm(t, lk)
		lockers = append(lockers, lk)
	}
	ns.delay(5*time.Millisecond, ns.all()...)
	var ts tenures
	var wg sync.WaitGroup
	began := time.Now()
	for i, lk := range lockers {
		wg.Go(func() {
			l := take(t, lk, "x", nil)
			ts.work(l, fmt.Sprint("client ", i), time.Millisecond)
			release(t, l)
		})
	}
	wg.Wait()
	ts.check(t)
	if len(ts.all) != clients {
		t.Fatalf("%d of %d served", len(ts.all), clients)
	}
	first := ts.all[0].from.Sub(began)
	t.Logf("first after %v, last after %v", first, ts.all[clients-1].to.Sub(began))
	if first > time.Second+slack {
		t.Errorf("the first winner needed %v", first)
	}
}

// TestOneWinnerOfManyTries: of hosts that try at the same second one wins, and
// the others hear that the name is held.
func TestOneWinnerOfManyTries(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 4, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			ns := start(t, n)
			var lockers []*redlock.Locker
			for range 5 {
				lockers = append(lockers, ns.open(nil))
				warm(t, lockers[len(lockers)-1])
			}
			for round := range 30 {
				name := fmt.Sprint("x", round)
				won := make(chan *redlock.Lease, len(lockers))
				var wg sync.WaitGroup
				for _, lk := range lockers {
					wg.Go(func() {
						l, err := lk.TryAcquire(t.Context(), name, nil)
						if err != nil {
							is(t, err, []error{redlock.ErrHeld})
							return
						}
						won <- l
					})
				}
				wg.Wait()
				close(won)
				if len(won) != 1 {
					t.Errorf("round %d: %d winners", round, len(won))
				}
				for l := range won {
					release(t, l)
				}
			}
		})
	}
}

// TestB66TriesOnLoadedServers: servers too busy to answer in time are an outage of
// nodes, never the caller's deadline, and leave nothing.
func TestB66TriesOnLoadedServers(t *testing.T) {
	const tries = 2000
	ns := start(t, 5)
	lk := openAsIs(t, ns.urls(), &redlock.Options{NodeTimeout: 20 * time.Millisecond})
	warm(t, lk)
	busy, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for _, i := range ns.all() {
		ns.do(i, "PING")
		load.Go(func() {
			for busy.Err() == nil {
				ns.do(i, "EVAL", "local t = redis.call('TIME') local s = t[1] * 1e6 + t[2] "+
					"repeat t = redis.call('TIME') until t[1] * 1e6 + t[2] > s + 15000 return 1", "0")
			}
		})
	}
	var mu sync.Mutex
	outcomes := map[string]int{}
	note := func(what string) {
		mu.Lock()
		outcomes[what]++
		mu.Unlock()
	}
	inParallel(tries, tries, func(i int) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		own := i%4 == 0 // has a deadline of its own
		if own {
			ctx, cancel = context.WithTimeout(ctx, 30*time.Millisecond)
			defer cancel()
		}
		l, err := lk.TryAcquire(ctx, fmt.Sprint("x", i), &redlock.AcquireOptions{TTL: longTTL, MaxAttempts: 5})
		switch {
		case err == nil:
			note("lease")
			if err := l.Release(context.Background()); err != nil {
				is(t, err, []error{redlock.ErrNoQuorum}, context.DeadlineExceeded)
			}
		case errors.Is(err, context.DeadlineExceeded):
			note("own deadline")
			if !own {
				t.Errorf("a caller without a deadline got %v", err)
			}
		default:
			note("no quorum")
			is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
		}
	})
	stop()
	load.Wait()
	t.Logf("outcomes: %v", outcomes)
	ns.empty(patience, ns.all()...)
}

// TestWaitersGetItSoonAfterTheHolder is the least that waiting is for.
func TestWaitersGetItSoonAfterTheHolder(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	a, b := ns.open(nil), ns.open(nil)
	for name, end := range map[string]func(*redlock.Lease){
		"released": func(l *redlock.Lease) { release(t, l) },
		"expires":  func(*redlock.Lease) {},
	} {
		l := take(t, a, name, &redlock.AcquireOptions{TTL: 2 * time.Second, NoRenew: true})
		waiting := make(chan struct{}, 1000)
		got := make(chan *redlock.Lease, 1)
		go func() {
			got <- take(t, b, name, &redlock.AcquireOptions{OnWait: func(redlock.Wait) { waiting <- struct{}{} }})
		}()
		<-waiting
		end(l)
		await.True(t, 2*time.Second+slack, "the waiter has it", func() bool { return len(got) > 0 })
		release(t, <-got)
	}
}
