package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/clockshim"
	"example.com/redlock/testkit/redisserver"
)

// shortOptions make quarantines as short as they can be: shortQ.
func shortOptions() *redlock.Options {
	return &redlock.Options{MaxTTL: 2 * time.Second, TTL: time.Second}
}

// shortQ is the longest lease, 1 % for clocks, and half of it for attempts.
const shortQ = 3020 * time.Millisecond

// startWithClock starts n servers, the first of which has a wall clock of its own.
func startWithClock(t *testing.T, n int) (*nodes, *clockshim.Clock) {
	t.Helper()
	clock, err := clockshim.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ns := start(t, n-1)
	ns.servers = append([]*redisserver.Server{redisserver.StartWith(t, redisserver.Options{Clock: clock})}, ns.servers...)
	ns.direct = append(ns.direct, nil)
	return ns, clock
}

// restartEmpty restarts a node that keeps nothing, as a power cut does.
func (ns *nodes) restartEmpty(which ...int) {
	ns.t.Helper()
	ns.kill(which...)
	ns.restart(which...)
}

// inQuarantine waits until node i is in another quarantine than the one named by
// before, and returns the name of the new one.
func (ns *nodes) inQuarantine(i int, before string) (guard string) {
	ns.t.Helper()
	await.True(ns.t, patience, fmt.Sprintf("node %d is in quarantine", i+1), func() bool {
		guard = ns.text(i, "GET", "redlock:node")
		return strings.HasPrefix(guard, "quarantine:") && guard != before
	})
	return guard
}

// TestF06F08AQuarantineIsMeasured: of three nodes one is dead and one restarts, so
// that its vote decides. It votes again after the longest lease is over that it may have
// granted, not before, and soon, whatever its clock says.
func TestF06F08AQuarantineIsMeasured(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, restart := range map[string]func(ns *nodes, clock *clockshim.Clock) (last time.Time){
		"clock an hour ahead": func(ns *nodes, clock *clockshim.Clock) time.Time {
			return restartAndThen(ns, func() { clock.Jump(time.Hour) })
		},
		"clock an hour behind": func(ns *nodes, clock *clockshim.Clock) time.Time {
			return restartAndThen(ns, func() { clock.Jump(-time.Hour) })
		},
		"F08 booted a year ahead": func(ns *nodes, clock *clockshim.Clock) time.Time {
			clock.Jump(year)
			return restartAndThen(ns, func() { clock.Jump(-year) })
		},
		"F06 three restarts": func(ns *nodes, _ *clockshim.Clock) time.Time {
			last, guard := time.Now(), ""
			for range 3 {
				last = restartAndThen(ns, func() { guard = ns.inQuarantine(0, guard) })
				pass(shortQ / 3)
			}
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, clock := startWithClock(t, 3)
			lk := ns.open(shortOptions())
			warm(t, lk)
			ns.kill(2)
			type won struct {
				lease *redlock.Lease
				err   error
				at    time.Time
			}
			wins := make(chan won, 1)
			last := restart(ns, clock)
			go func() {
				l, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: patience})
				wins <- won{l, err, time.Now()}
			}()
			w := <-wins
			if w.err != nil {
				t.Fatal(w.err)
			}
			if took := w.at.Sub(last); took < shortQ || took > shortQ+slack {
				t.Errorf("the node votes after %v, want %v", took, shortQ)
			}
			// One other node votes, and two are needed to tell the tokens.
			if !w.lease.TokenByClock() {
				t.Error("it is not said that the order of tokens rests on a clock")
			}
			release(t, w.lease)
		})
	}
}

// restartAndThen restarts the first node empty, and does something while it is in
// quarantine. It returns the time from before the restart.
func restartAndThen(ns *nodes, then func()) time.Time {
	before := time.Now()
	ns.restartEmpty(0)
	look := ns.open(shortOptions())
	_, _ = look.TryAcquire(context.Background(), "look", &redlock.AcquireOptions{MaxAttempts: 1})
	ns.inQuarantine(0, "")
	then()
	return before
}

// TestF67AllNodesRestarted, as after a power cut: service is back after one
// quarantine, and tokens go on from the clock.
func TestF67AllNodesRestarted(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	events := &log{}
	o := shortOptions()
	o.Observer = events.observe
	lk := ns.open(o)
	before := take(t, lk, "x", nil)
	began := time.Now()
	ns.restartEmpty(ns.all()...)
	l := take(t, lk, "x", nil)
	if took := time.Since(began); took < shortQ || took > shortQ+slack {
		t.Errorf("service is back after %v, want %v", took, shortQ)
	}
	if l.Token() <= before.Token() || !l.TokenByClock() || before.TokenByClock() {
		t.Errorf("token %v (by clock: %v) after %v (%v)", l.Token(), l.TokenByClock(), before.Token(), before.TokenByClock())
	}
	if before.Context().Err() == nil {
		t.Error("the lease that all nodes forgot goes on")
	}
	release(t, l)
	for _, i := range ns.all() {
		awaitVote(t, ns, i)
	}
	await.True(t, patience, "all nodes are said to vote", func() bool { return len(events.of(redlock.EventNodeLifted)) == 5 })
	for _, e := range events.of(redlock.EventNodeLifted) {
		if e.Err == nil {
			t.Errorf("%s: it is not said that its tokens rest on its clock", e.Node)
		}
	}
}

// of returns the events of a kind.
func (l *log) of(kind redlock.EventKind) (all []redlock.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == kind {
			all = append(all, e)
		}
	}
	return all
}

// TestAWaitForAQuarantineSaysSo: a caller who waits, does not wait for holders, or
// waits too briefly, learns at once which node is out, why, and for how long.
func TestAWaitForAQuarantineSaysSo(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	events, text := &log{}, &lockedBuffer{}
	o := shortOptions()
	o.Observer, o.Logger = events.observe, slog.New(slog.NewTextHandler(text, nil))
	lk := ns.open(o)
	warm(t, lk)
	ns.kill(2)
	began := time.Now()
	ns.restartEmpty(0)
	told := func(what, text string) {
		t.Helper()
		for _, want := range []string{ns.servers[0].Addr(), "quarantine", "lost its data", " in "} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q: %s", what, want, text)
			}
		}
	}

	_, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: time.Second})
	is(t, err, []error{redlock.ErrQuarantined}, redlock.ErrHeld, context.DeadlineExceeded)
	told("the error", fmt.Sprint(err))
	if v := votes(t, err)[0]; v.Outcome != "quarantined" || v.Remaining <= 0 || v.Remaining > shortQ || !errors.Is(v.Err, redlock.ErrQuarantined) {
		t.Errorf("the vote: %+v", v)
	}
	told("the log", strings.ReplaceAll(text.String(), "does not vote", "quarantine"))
	if e := events.of(redlock.EventNodeQuarantined); len(e) != 1 || e[0].Took <= 0 || e[0].Took > shortQ+time.Millisecond {
		t.Errorf("events: %+v", e)
	}

	var first redlock.Wait
	var toldAfter time.Duration
	asked := time.Now()
	l, err := lk.TryAcquire(t.Context(), "x", &redlock.AcquireOptions{OnWait: func(w redlock.Wait) {
		if first.Err == nil {
			first, toldAfter = w, time.Since(asked)
		}
	}})
	if err != nil {
		t.Fatalf("a caller that does not wait for holders: %v", err)
	}
	if took := time.Since(began); took < shortQ {
		t.Errorf("the node voted after %v", took)
	}
	told("what it waits for", fmt.Sprint(first.Err))
	if first.Remaining <= 0 || first.Remaining > shortQ || toldAfter > time.Second {
		t.Errorf("it was told after %v to wait %v", toldAfter, first.Remaining)
	}
	_, err = ns.open(shortOptions()).TryAcquire(t.Context(), "x", nil)
	is(t, err, []error{redlock.ErrHeld})
	release(t, l)
}

// TestARestartWithDataSaysWhy: a node that kept its data is no new one.
func TestARestartWithDataSaysWhy(t *testing.T) {
	t.Parallel()
	ns := start(t, 1, "--appendonly", "yes")
	lk := ns.open(shortOptions())
	warm(t, lk)
	ns.restart(0)
	_, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: time.Second})
	is(t, err, []error{redlock.ErrQuarantined})
	for _, want := range []string{ns.servers[0].Addr(), "restarted, or was given other data", "votes in"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestCounterOnly: where too few nodes can tell the tokens, one that lost its counters
// stays out, and says so, until an operator lets it in.
func TestCounterOnly(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	var text lockedBuffer
	o := shortOptions()
	o.CounterOnly, o.Logger = true, slog.New(slog.NewTextHandler(&text, nil))
	lk := ns.open(o)
	before := take(t, lk, "x", nil)
	release(t, before)
	ns.kill(2)
	ns.restartEmpty(0)
	_, err := lk.Acquire(t.Context(), "x", &redlock.AcquireOptions{Wait: shortQ + slack})
	is(t, err, []error{redlock.ErrQuarantined}, redlock.ErrHeld)
	for what, said := range map[string]string{"error": fmt.Sprint(err), "log": text.String()} {
		for _, want := range []string{"too few", "CounterOnly"} {
			if !strings.Contains(said, want) {
				t.Errorf("the %s does not say %q: %s", what, want, said)
			}
		}
	}
	if states, err := lk.Init(t.Context(), nil); err == nil || states[0].Standing != "quarantined" {
		t.Errorf("init without force: %+v, %v", states[0], err)
	}
	if states, _ := lk.Init(t.Context(), &redlock.InitOptions{Force: true}); states[0].Standing != "ok" || !states[0].ByClock {
		t.Errorf("init with force: %+v", states[0])
	}
	l := take(t, lk, "x", nil)
	if l.Token() <= before.Token() || !l.TokenByClock() {
		t.Errorf("token %v (by clock: %v) after %v", l.Token(), l.TokenByClock(), before.Token())
	}
	release(t, l)
}

// TestF05CountersComeFromTheOthers: a node that restarts when all its leases are over
// has still forgotten its counters. Where enough others vote, it goes on from theirs, and
// no clock decides.
func TestF05CountersComeFromTheOthers(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	o := shortOptions()
	o.CounterOnly = true
	lk := ns.open(o)
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	for i := range 3 { // far from what any clock would give
		if err := ns.do(i, "HSET", "redlock:tokens", "floor", fmt.Sprint(ahead)).Error(); err != nil {
			t.Fatal(err)
		}
	}
	ns.freeze(2)
	l := take(t, lk, "x", nil)
	release(t, l)
	ns.thaw(2)
	ns.restartEmpty(0) // its lease is over: only the number is forgotten
	warm(t, lk)
	awaitVote(t, ns, 0)
	ns.kill(1)
	again := take(t, lk, "x", nil)
	if again.Token() <= l.Token() || again.TokenByClock() {
		t.Errorf("token %v (by clock: %v) after %v", again.Token(), again.TokenByClock(), l.Token())
	}
	release(t, again)
}

// TestB29EveryNodeRestartedInTurn: a lease that is kept up outlives the restart of
// every node, one after the other.
func TestB29EveryNodeRestartedInTurn(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	events := &log{}
	o := shortOptions()
	o.Observer = events.observe
	lk := ns.open(o)
	l := take(t, lk, "x", nil)
	await.True(t, patience, "all nodes have it", func() bool { return ns.held(0, "x") != "" && ns.held(1, "x") != "" && ns.held(2, "x") != "" })
	ns.restartEmpty(0)
	await.True(t, patience, "it has joined the first node", func() bool { return ns.held(0, "x") != "" })
	extended := events.count(redlock.EventExtended, "x")
	events.await(t, redlock.EventExtended, "x", extended+1) // the join counts from then on
	ns.restartEmpty(1)
	extended = events.count(redlock.EventExtended, "x")
	events.await(t, redlock.EventExtended, "x", extended+2)
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("extend: %v", err)
	}
	_, err := ns.open(shortOptions()).TryAcquire(t.Context(), "x", nil)
	is(t, err, []error{redlock.ErrHeld})
	// Not that the lease has vanished: by the time that the node votes again, it would
	// have ended there anyway.
	if events.count(redlock.EventNodeQuarantined, "") != 2 {
		t.Error("nothing told that two nodes may have forgotten the lease")
	}
	release(t, l)
}
