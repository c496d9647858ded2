package difftest

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/redlock/internal/node"
	"example.com/redlock/redisnode"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// listening is a Listen under way.
type listening struct {
	pushes chan node.Push
	ended  chan error
	stop   context.CancelFunc
}

// listen has clientA listen through n, and returns once it does.
func listen(f *fixture, n *redisnode.Node) *listening {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	l := &listening{pushes: make(chan node.Push, 100), ended: make(chan error, 1), stop: cancel}
	f.t.Cleanup(cancel)
	ready := make(chan struct{})
	go func() {
		l.ended <- n.Listen(ctx, f.keys, clientA, func() { close(ready) }, func(p node.Push) { l.pushes <- p })
	}()
	select {
	case <-ready:
	case err := <-l.ended:
		f.t.Fatal(err)
	case <-time.After(5 * time.Second):
		f.t.Fatal("not ready")
	}
	return l
}

// wantEnd checks that l ends within d, with an error.
func (l *listening) wantEnd(t *testing.T, d time.Duration) error {
	t.Helper()
	select {
	case err := <-l.ended:
		if err == nil {
			t.Error("ended without an error")
		}
		return err
	case <-time.After(d):
		t.Fatalf("still listens after %v", d)
		return nil
	}
}

func TestReleaseHandsTheNameOver(t *testing.T) {
	f := setUp(t)
	l := listen(f, f.node)
	f.want(node.Granted, acquire(idB, 1000))
	first := f.want(node.Held, waitFor("x", waiterA, 3))
	second := f.want(node.Held, waitFor("x", waiterC, 7))
	if first.Ahead != 0 || second.Ahead != 1 || second.Ticket <= first.Ticket || first.HolderTicket != 0 {
		t.Errorf("%+v, %+v", first, second)
	}
	f.do("PUBLISH", f.keys.Channel(clientA), "not ours") // must not end anything
	f.want(node.Done, op(node.Release, idB))
	p := <-l.pushes
	if p.Token <= first.Token || p.Token == 0 {
		t.Errorf("token %d after %d", p.Token, first.Token)
	}
	want := node.Push{Client: clientA, Waiter: waiterA, Name: "x", ID: waiterA, Token: p.Token, Beat: 3, Lease: 2000}
	if p != want {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	// The next is told with which ticket the holder waited, and a stranger waits.
	if a := f.want(node.Held, waitFor("x", waiterC, 8)); a.Holder != waiterA || a.HolderTicket != first.Ticket || a.Ahead != 0 {
		t.Errorf("%+v", a)
	}
	f.want(node.Done, node.Op{Kind: node.Release, Name: "x", ID: waiterA})
	if p := <-l.pushes; p.Waiter != waiterC || p.Beat != 8 {
		t.Errorf("%+v", p)
	}
	f.want(node.Done, node.Op{Kind: node.Release, Name: "x", ID: waiterC})
	for _, key := range []string{f.keys.Lease("x"), f.keys.Line("x"), f.keys.Waiters("x")} {
		if f.do("EXISTS", key) != "0" {
			t.Errorf("%s is left", key)
		}
	}
}

// B69: whom nobody listens for is passed over at once.
func TestADeafClientIsPassedOver(t *testing.T) {
	f := setUp(t)
	f.want(node.Granted, acquire(idB, 1000))
	f.want(node.Held, waitFor("x", waiterA, 1))
	f.want(node.Done, op(node.Release, idB))
	f.want(node.Granted, acquire(idB, 1000))
}

// A hand-over that cannot be told is taken back, and fails nobody.
func TestDeniedPublish(t *testing.T) {
	f := setUp(t)
	listen(f, f.node)
	f.do("ACL", "SETUSER", "mute", "on", ">pw", "~*", "resetchannels", "+@all")
	f.want(node.Granted, acquire(idB, 1000))
	f.want(node.Held, waitFor("x", waiterA, 1))
	mute := f.open("redis://mute:pw@" + f.server.Addr())
	r, err := mute.Call(t.Context(), f.call(op(node.Release, idB)))
	if err != nil || r.Answers[0].Code != node.Done {
		t.Fatal(r, err)
	}
	f.want(node.Granted, acquire(idB, 1000))
	err = mute.Listen(t.Context(), f.keys, clientA, func() { t.Error("ready") }, nil)
	wantCallError(t, err, false, true)
}

// An operation on a line whose keys hold something else fails before it wrote.
func TestALineOfAnotherType(t *testing.T) {
	f := setUp(t)
	f.want(node.Granted, acquire(idB, 1000))
	f.want(node.Held, waitFor("x", waiterA, 1))
	f.do("SET", f.keys.Line("x"), "no line")
	f.want(node.WrongType, op(node.Release, idB))
	f.want(node.WrongType, waitFor("x", waiterC, 1))
	if a := f.want(node.Held, node.Op{Kind: node.Inspect, Name: "x"}); a.Holder != idB {
		t.Errorf("%+v", a)
	}
}

// Where memory is short nobody enters, but names are still handed over.
func TestOutOfMemoryInLine(t *testing.T) {
	f := setUp(t)
	l := listen(f, f.node)
	f.want(node.Granted, acquire(idB, 1000))
	f.want(node.Held, waitFor("x", waiterA, 1))
	f.do("CONFIG", "SET", "maxmemory", "1")
	f.want(node.Failed, waitFor("x", waiterC, 1))
	f.want(node.Done, op(node.Release, idB))
	if p := <-l.pushes; p.Waiter != waiterA {
		t.Errorf("%+v", p)
	}
}

func TestListenEnds(t *testing.T) {
	f := setUp(t)
	t.Run("with its ctx", func(t *testing.T) {
		l := listen(f, f.node)
		l.stop()
		if err := l.wantEnd(t, time.Second); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		await.True(t, time.Second, "the channel is gone", func() bool { return f.do("PUBLISH", f.keys.Channel(clientA), "") == "0" })
	})
	t.Run("with its connection", func(t *testing.T) {
		l := listen(f, f.node)
		f.do("CLIENT", "KILL", "TYPE", "pubsub")
		l.wantEnd(t, time.Second)
		f.want(node.Absent, inspect())
	})
	t.Run("with the node", func(t *testing.T) {
		n := f.open(f.server.URL())
		l := listen(f, n)
		n.Close()
		l.wantEnd(t, time.Second)
		wantCallError(t, n.Listen(t.Context(), f.keys, clientA, nil, nil), false, false)
	})
	t.Run("with the server", func(t *testing.T) {
		l := listen(f, f.node)
		f.server.Kill()
		l.wantEnd(t, time.Second)
		if err := f.node.Listen(t.Context(), f.keys, clientA, nil, nil); err == nil {
			t.Error("listens to nothing")
		}
	})
}

// A connection that carries nothing any more is noticed, though nothing is awaited.
func TestListenNoticesSilence(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	proxy := f.throughProxy()
	l := listen(f, f.node)
	proxy.SetMode(faultproxy.ToServer, faultproxy.Swallow)
	proxy.SetMode(faultproxy.ToClient, faultproxy.Swallow)
	begin := time.Now()
	l.wantEnd(t, 5*time.Second)
	t.Logf("noticed after %v", time.Since(begin))
	// A server that says nothing from the beginning.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := f.node.Listen(ctx, f.keys, clientA, func() { t.Error("ready") }, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
