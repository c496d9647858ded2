package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// The faults of the catalogue that a server or the way to it can have without
// losing its memory. Each is done to a minority, which must cost nothing but
// that vote, and to a majority, which must fail in time and leave nothing.

// fault does something to the given nodes and returns how to end it.
type fault func(ns *nodes, which ...int) (heal func())

func TestFaultsOfNodes(t *testing.T) {
	for name, f := range map[string]fault{
		"F22 busy script": busyScript,
		"F24 sleeping":    sleeping,
		"F25 stopped":     stopped,
		"F29 black hole": func(ns *nodes, which ...int) func() {
			return blackHole(ns, faultproxy.Swallow, which...)
		},
		"F30 replies lost": func(ns *nodes, which ...int) func() {
			ns.mode(faultproxy.ToClient, faultproxy.Swallow, which...)
			return func() { ns.mode(faultproxy.ToClient, faultproxy.Pass, which...) }
		},
		"F28 disk stall": diskStall,
		"F36 half open": func(ns *nodes, which ...int) func() {
			return blackHole(ns, faultproxy.Hold, which...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := startProxied(t, 5, "--enable-debug-command", "yes", "--appendonly", "yes", "--appendfsync", "always")
			lk := ns.open(&redlock.Options{NodeTimeout: 100 * time.Millisecond, ConnectWait: time.Second})
			warm(t, lk)
			await.True(t, patience, "all nodes know us", func() bool { return len(fitNodes(lk)) == 5 })

			heal := f(ns, 3, 4)
			within(t, time.Second, "a cycle without a minority", func() {
				l := take(t, lk, "minority", &redlock.AcquireOptions{TTL: longTTL})
				if err := l.Extend(t.Context()); err != nil {
					t.Errorf("extend: %v", err)
				}
				release(t, l)
			})
			undo := f(ns, 2)
			within(t, 2*time.Second, "an attempt without a majority", func() {
				_, err := lk.TryAcquire(t.Context(), "majority", &redlock.AcquireOptions{TTL: longTTL})
				is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld, context.DeadlineExceeded)
			})
			ns.empty(undone, 0, 1)
			undo()
			heal()
			within(t, 10*time.Second, "a cycle afterwards", func() {
				release(t, take(t, lk, "majority", &redlock.AcquireOptions{TTL: longTTL}))
			})
			ns.empty(undone+5*time.Second, ns.all()...)
		})
	}
}

func fitNodes(lk *redlock.Locker) (fit []string) {
	for _, n := range lk.Nodes(context.Background()) {
		if n.Err == nil {
			fit = append(fit, n.Node)
		}
	}
	return fit
}

func blackHole(ns *nodes, m faultproxy.Mode, which ...int) func() {
	ns.mode(faultproxy.ToServer, m, which...)
	ns.mode(faultproxy.ToClient, m, which...)
	return func() {
		ns.mode(faultproxy.ToServer, faultproxy.Pass, which...)
		ns.mode(faultproxy.ToClient, faultproxy.Pass, which...)
	}
}

func stopped(ns *nodes, which ...int) func() {
	ns.freeze(which...)
	return func() { ns.thaw(which...) }
}

// busyScript keeps servers in somebody's endless script: silent at first, and
// after a while answering BUSY to everybody.
func busyScript(ns *nodes, which ...int) func() {
	return background(ns, []string{"EVAL", "while true do end", "0"}, []string{"SCRIPT", "KILL"}, which...)
}

// sleeping is a server in a long operation: it neither reads nor answers, then
// carries out what has gathered.
func sleeping(ns *nodes, which ...int) func() {
	return background(ns, []string{"DEBUG", "SLEEP", "4"}, nil, which...)
}

// diskStall is a disk that takes two seconds for each write that a server has to
// have made before it answers.
func diskStall(ns *nodes, which ...int) func() {
	set := func(us string) {
		for _, i := range which {
			ns.text(i, "DEBUG", "AOF-FLUSH-SLEEP", us)
		}
	}
	set("2000000")
	return func() { set("0") }
}

// TestF27ThrottledServers get a tenth of their processor, in turns of 5 ms: a
// minority of them costs nothing, and with a majority there is never a second
// holder and nothing stays behind.
func TestF27ThrottledServers(t *testing.T) {
	t.Parallel()
	ns := start(t, 5)
	// Shorter than they stand still: some votes are given after we gave up on them.
	lk := ns.open(&redlock.Options{NodeTimeout: 25 * time.Millisecond, ConnectWait: 2 * time.Second})
	warm(t, lk)
	for _, throttled := range [][]int{{3, 4}, {2, 3, 4}} {
		stop := throttle(ns, throttled...)
		var inside atomic.Int64
		inParallel(4, 100, func(int) {
			l, err := lk.Acquire(context.Background(), "x", &redlock.AcquireOptions{TTL: longTTL, Wait: 3 * time.Second})
			if err != nil {
				if len(throttled) < 3 && !errors.Is(err, redlock.ErrHeld) {
					t.Errorf("a throttled minority: %v", err)
				}
				return
			}
			if inside.Add(1) > 1 {
				t.Error("two holders")
			}
			pass(2 * time.Millisecond) // long enough for a second holder to come in
			inside.Add(-1)
			_ = l.Release(context.Background()) // may not be confirmed in time
		})
		stop()
		ns.empty(undone+5*time.Second, ns.all()...)
	}
}

// throttle stops and continues servers in turns until it is told to end.
func throttle(ns *nodes, which ...int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			ns.freeze(which...)
			pass(45 * time.Millisecond)
			ns.thaw(which...)
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// background starts a long command on servers past the proxies. It returns how
// to end it.
func background(ns *nodes, start, stop []string, which ...int) func() {
	ended := make(chan error, len(which))
	for _, i := range which {
		ns.text(i, "PING")
		c := ns.direct[i]
		go func() { ended <- c.Do(context.Background(), c.B().Arbitrary(start...).Build()).Error() }()
	}
	return func() {
		for _, i := range which {
			if stop == nil {
				continue
			}
			other := connect(ns.t, ns.servers[i].Addr())
			await.True(ns.t, patience, "the script is killed", func() bool {
				return other.Do(context.Background(), other.B().Arbitrary(stop...).Build()).Error() == nil
			})
			other.Close()
		}
		for range which {
			<-ended
		}
	}
}

// F21: a server that is reading its data answers LOADING. It is refused like a
// server that is down, and back once it is done.
func TestF21LoadingServer(t *testing.T) {
	t.Parallel()
	ns := start(t, 3, "--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
	o := shortOptions() // they are in quarantine then
	o.ConnectWait = 500 * time.Millisecond
	lk := ns.open(o)
	warm(t, lk)
	for i := range 3 {
		ns.text(i, "EVAL", "for i = 1, 2000 do redis.call('SET', 'filler' .. i, string.rep('x', 100)) end return 'ok'", "0")
		ns.text(i, "SAVE")
	}
	ns.kill(0, 1)
	for _, i := range []int{0, 1} {
		go func() { _ = ns.servers[i].Restart(context.Background()) }()
	}
	seen := false
	await.True(t, patience, "LOADING is among the votes, then a lease is taken", func() bool {
		l, err := lk.TryAcquire(context.Background(), "x", nil)
		if err == nil {
			release(t, l)
			return true
		}
		is(t, err, []error{redlock.ErrNoQuorum}, redlock.ErrHeld)
		for _, v := range votes(t, err) {
			seen = seen || (v.Err != nil && strings.Contains(v.Err.Error(), "LOADING"))
		}
		return false
	})
	if !seen {
		t.Error("no vote said LOADING")
	}
}

// F31, F34: the connection is reset in the middle of a request, or of a reply.
// Whatever ran is undone, and the next attempt of the same caller wins.
func TestF34ResetAmidAPipeline(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 3)
	lk := ns.open(nil)
	warm(t, lk)
	for _, d := range []faultproxy.Direction{faultproxy.ToServer, faultproxy.ToClient} {
		for _, after := range []int64{0, 1, 7, 40, 200} {
			for i := range 2 {
				ns.proxies[i].CutAfter(d, after)
			}
			l := take(t, lk, fmt.Sprintf("direction %v after %d", d, after), &redlock.AcquireOptions{TTL: longTTL})
			_ = l.Release(context.Background()) // may meet the cut itself
			for i := range 2 {
				ns.proxies[i].CutAfter(d, -1)
			}
		}
	}
	ns.empty(undone, ns.all()...)
}

// An acquire that the network held back is followed by its release on the same
// connection, and leaves nothing. (What happens where it is not: quorum's
// TestF33F35AStragglerBehindItsReleaseIsStale.)
func TestAHeldBackAcquireIsUndone(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 3)
	lk := ns.open(&redlock.Options{NodeTimeout: 50 * time.Millisecond, ConnectWait: 300 * time.Millisecond})
	warm(t, lk)
	ns.mode(faultproxy.ToServer, faultproxy.Hold, 0, 1)
	_, err := lk.TryAcquire(t.Context(), "x", &redlock.AcquireOptions{TTL: longTTL})
	is(t, err, []error{redlock.ErrNoQuorum})
	if !redlock.MayBeHeld(err) {
		t.Error("an acquire is under way somewhere, and MayBeHeld says no")
	}
	ns.mode(faultproxy.ToServer, faultproxy.Pass, 0, 1)
	within(t, 2*time.Second, "the next lease", func() { release(t, take(t, lk, "x", nil)) })
	ns.empty(undone, ns.all()...)
}

// F75: names of any bytes and lengths up to the limit are different locks.
func TestF75AnyNames(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	lk := ns.open(nil)
	names := []string{
		"a", "{a}", "a}b", "{a}b{c", "a b", "a\x00b", "a\r\nb", "\xff\xfe", "\xfe\xff", "~shared", "~broken", "redlock", "*", "héllo",
		strings.Repeat("n", 511), strings.Repeat("n", 512), strings.Repeat("\x00", 512),
	}
	var leases []*redlock.Lease
	for _, name := range names {
		leases = append(leases, take(t, lk, name, nil))
	}
	for _, l := range leases {
		if _, err := lk.TryAcquire(t.Context(), l.Name(), nil); !errors.Is(err, redlock.ErrHeld) {
			t.Errorf("%q: %v", l.Name(), err)
		}
		st, err := lk.Inspect(t.Context(), l.Name())
		if err != nil || !st.Held || st.Token != l.Token() {
			t.Errorf("%q: %+v, %v", l.Name(), st, err)
		}
		release(t, l)
	}
	ns.empty(undone, ns.all()...)
}

// F76, B107: names that are free leave nothing but a bounded number of counters,
// and a name that comes again has a larger token.
func TestF76B107FreeNamesLeaveNothing(t *testing.T) {
	t.Parallel()
	ns := start(t, 1)
	lk := ns.open(nil)
	// Counters ahead of the clock: they alone make tokens grow.
	_ = ns.do(0, "HSET", "redlock:tokens", "floor", fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()))
	first := take(t, lk, "name 0", nil)
	release(t, first)
	for i := range 6000 {
		release(t, take(t, lk, fmt.Sprintf("name %d", i), nil))
	}
	again := take(t, lk, "name 0", nil)
	release(t, again)
	if again.Token() <= first.Token() {
		t.Errorf("token %d after %d", again.Token(), first.Token())
	}
	ns.empty(undone, 0)
	keys, err := ns.do(0, "DBSIZE").AsInt64()
	if err != nil || keys != 3 {
		t.Errorf("%d keys, want the guard, the counters and the record of the clock (%v)", keys, err)
	}
	fields, err := ns.do(0, "HLEN", "redlock:tokens").AsInt64()
	if err != nil || fields > 4097 {
		t.Errorf("%d counters (%v)", fields, err)
	}
}

// F78: a load balancer behind one address sends calls to another server than
// the one that was greeted. It does not have the guard, whatever it stores.
func TestF78AnotherServerBehindTheAddress(t *testing.T) {
	t.Parallel()
	ns := startProxied(t, 3)
	stranger := start(t, 1)
	var seen log
	lk := ns.open(&redlock.Options{Observer: seen.observe})
	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	await.True(t, patience, "all nodes have it", func() bool {
		return ns.held(0, "x") != "" && ns.held(1, "x") != "" && ns.held(2, "x") != ""
	})
	// The stranger has this lock's guard, copied from the node whose place it
	// takes, and none of its leases.
	guard := ns.text(0, "GET", "redlock:node")
	stranger.text(0, "SET", "redlock:node", guard)
	ns.proxies[0].Retarget(stranger.servers[0].Addr())
	ns.proxies[0].Cut()
	await.True(t, patience, "the other server is noticed", func() bool {
		release(t, take(t, lk, "y", nil))
		return seen.count(redlock.EventNodeQuarantined, "") > 0
	})
	if l.Context().Err() != nil {
		t.Errorf("the lease ended: %v", context.Cause(l.Context()))
	}
	release(t, l)
}
