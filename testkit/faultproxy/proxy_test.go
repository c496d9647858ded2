package faultproxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"go.uber.org/goleak"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/embedded"
	"example.com/redlock/testkit/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 10 * time.Second      // for what must happen
	silence  = 30 * time.Millisecond // for what must not
)

func Example() {
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	proxy, err := faultproxy.Start(server.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proxy.Close()

	c, err := proto.Dial(proxy.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	proxy.Duplicate(1)
	reply, _ := c.Do("INCR", "counter")
	fmt.Printf("%q\n", reply)
	// Output: ":2\r\n"
}

func TestPassesOnAndCounts(t *testing.T) {
	f := setUp(t)
	c := f.dial()
	for _, command := range []string{"SET k v\r\n", "GET k\r\n"} {
		c.send(command)
	}
	c.expect("+OK\r\n$1\r\nv\r\n")
	want := faultproxy.Stats{Accepted: 1, Open: 1, BytesIn: 47, BytesOut: 12, Commands: 2}
	if got := f.proxy.Stats(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	c.Close()
	await.True(t, patience, "the connection is gone", func() bool { return f.proxy.Stats().Open == 0 })
}

func TestAHalfClosedConnectionGetsItsReplies(t *testing.T) {
	f := setUp(t)
	f.proxy.SetDelay(faultproxy.ToServer, silence)
	c := f.dial()
	c.send("PING\r\n")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.expect("+PONG\r\n")
	if b, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after the end: %q, %v", b, err)
	}
}

func TestDelayLengthensTheWayWithoutNarrowingIt(t *testing.T) {
	const delay = 100 * time.Millisecond
	for _, d := range []faultproxy.Direction{faultproxy.ToServer, faultproxy.ToClient} {
		f := setUp(t)
		f.proxy.SetDelay(d, delay)
		c := f.dial()
		const pings = 20
		start := time.Now()
		for i := range pings {
			c.send("PING\r\n")
			await.True(t, patience, "the ping is at the proxy", func() bool {
				return f.proxy.Stats().Commands == int64(i+1)
			})
		}
		c.expect(strings.Repeat("+PONG\r\n", pings))
		if took := time.Since(start); took < delay || took > pings*delay/2 {
			t.Errorf("direction %d: %d pings took %v with a delay of %v", d, pings, took, delay)
		}
	}
}

func TestHoldDeliversLater(t *testing.T) {
	for _, d := range []faultproxy.Direction{faultproxy.ToServer, faultproxy.ToClient} {
		f := setUp(t)
		c := f.dial()
		f.proxy.SetMode(d, faultproxy.Hold)
		c.send("INCR n\r\n")
		c.expectSilence()
		late := f.dial() // is accepted all the same
		late.send("PING\r\n")
		late.expectSilence()
		f.proxy.SetMode(d, faultproxy.Pass)
		c.expect(":1\r\n")
		late.expect("+PONG\r\n")
	}
}

func TestSwallowedRepliesWereCarriedOut(t *testing.T) {
	f := setUp(t)
	c := f.dial()
	f.proxy.SetMode(faultproxy.ToClient, faultproxy.Swallow)
	c.send("SET k v\r\n")
	c.expectSilence()
	f.expectValue("k", "v")
	whole := f.dial()
	f.proxy.SetMode(faultproxy.ToClient, faultproxy.Pass)
	c.expectReset() // its stream has a hole
	whole.send("PING\r\n")
	whole.expect("+PONG\r\n")
}

func TestSwallowedRequestsNeverArrive(t *testing.T) {
	f := setUp(t)
	c := f.dial()
	f.proxy.SetMode(faultproxy.ToServer, faultproxy.Swallow)
	c.send("SET k v\r\n")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.expectSilence() // the end is swallowed too: the server would answer it
	f.proxy.SetMode(faultproxy.ToServer, faultproxy.Pass)
	c.expectReset()
	f.expectNoValue("k")
}

func TestCutInPlaceOfAReply(t *testing.T) {
	f := setUp(t)
	c, other := f.dial(), f.dial()
	other.send("PING\r\n")
	other.expect("+PONG\r\n")
	f.proxy.CutAfter(faultproxy.ToClient, 0)
	c.send("SET k v\r\n")
	c.expectReset()
	f.expectValue("k", "v")
	other.send("PING\r\n") // one cut, one connection
	other.expect("+PONG\r\n")
}

func TestCutAmidAReply(t *testing.T) {
	f := setUp(t)
	f.proxy.CutAfter(faultproxy.ToClient, 10)
	c := f.dial()
	c.send("PING\r\n")
	c.expect("+PONG\r\n")
	c.send("PING\r\n")
	c.expect("+PO")
	c.expectReset()
}

func TestCutAmidARequest(t *testing.T) {
	f := setUp(t)
	const command = "SET k v\r\n"
	f.proxy.CutAfter(faultproxy.ToServer, 20)
	c := f.dial()
	c.send(command)
	c.expectReset()
	f.expectNoValue("k")
	again := f.dial()
	again.send(command)
	again.expect("+OK\r\n")
}

func TestACutCalledOffNeverComes(t *testing.T) {
	f := setUp(t)
	f.proxy.CutAfter(faultproxy.ToClient, 0)
	f.proxy.CutAfter(faultproxy.ToClient, -1)
	c := f.dial()
	c.send("PING\r\n")
	c.expect("+PONG\r\n")
}

func TestCutResetsAll(t *testing.T) {
	f := setUp(t)
	a, b := f.dial(), f.dial()
	await.True(t, patience, "both accepted", func() bool { return f.proxy.Stats().Open == 2 })
	f.proxy.Cut()
	if open := f.proxy.Stats().Open; open != 0 {
		t.Errorf("%d connections open", open)
	}
	a.expectReset()
	b.expectReset()
}

func TestDuplicatesAreCarriedOutInARow(t *testing.T) {
	f := setUp(t)
	c := f.dial()
	f.proxy.Duplicate(2)
	c.send("INCR n\r\nINCR n\r\nINCR n\r\n")
	c.expect(":2\r\n:4\r\n:5\r\n")
	if st := f.proxy.Stats(); st.Duplicated != 2 || st.Commands != 3 {
		t.Errorf("stats %+v", st)
	}
}

func TestDuplicatesAmongPushes(t *testing.T) {
	f := setUp(t)
	sub := f.dial()
	sub.send("HELLO 3\r\nSUBSCRIBE c\r\n")
	sub.expectEventually(">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
	f.proxy.Duplicate(2)
	sub.send("PING\r\n")
	sub.expect("+PONG\r\n") // spared, so both are left
	pub := f.dial()
	pub.send("PUBLISH c x\r\nPUBLISH c y\r\n")
	pub.expect(":1\r\n:1\r\n")
	await.True(t, patience, "both doubled", func() bool { return f.proxy.Stats().Duplicated == 2 })
	const message = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n"
	sub.expect(strings.Repeat(message+"x\r\n", 2) + strings.Repeat(message+"y\r\n", 2))
}

func TestALongCommandInPiecesIsDuplicatedWhole(t *testing.T) {
	f := setUp(t)
	c := f.dial()
	f.proxy.Duplicate(1)
	value := strings.Repeat("x", 200_000)
	c.send("APPEND k " + value + "\r\n")
	c.expect(":400000\r\n")
}

func TestRefuse(t *testing.T) {
	f := setUp(t)
	c := f.dial()
	c.send("PING\r\n")
	c.expect("+PONG\r\n")
	for range 2 {
		if err := errors.Join(f.proxy.Refuse(true), f.proxy.Refuse(true)); err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", f.proxy.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			conn.Close()
			t.Errorf("dial: %v, want connection refused", err)
		}
		if err := f.proxy.Refuse(false); err != nil {
			t.Fatal(err)
		}
		f.dial().Close()
	}
	c.send("PING\r\n") // a connection that was there stays
	c.expect("+PONG\r\n")
}

func TestRetarget(t *testing.T) {
	f, g := setUp(t), setUp(t)
	old := f.dial()
	old.send("SET k f\r\n")
	old.expect("+OK\r\n")
	f.proxy.Retarget(g.server.Addr())
	fresh := f.dial()
	fresh.send("SET k g\r\n")
	fresh.expect("+OK\r\n")
	f.expectValue("k", "f")
	g.expectValue("k", "g")
	_ = g.server.Close()
	fresh.expectEnd()
	if conn, err := net.Dial("tcp", f.proxy.Addr()); err == nil { // the reset may beat it
		client{conn.(*net.TCPConn), bufio.NewReader(conn), t}.expectReset()
		conn.Close()
	}
	old.send("PING\r\n")
	old.expect("+PONG\r\n")
}

func TestClose(t *testing.T) {
	f := setUp(t)
	c := f.dial()
	f.proxy.SetMode(faultproxy.ToClient, faultproxy.Hold)
	f.proxy.SetDelay(faultproxy.ToServer, time.Hour)
	c.send("PING\r\n")
	if err := errors.Join(f.proxy.Close(), f.proxy.Close()); err != nil {
		t.Fatal(err)
	}
	c.expectReset()
	if err := f.proxy.Refuse(false); err == nil {
		t.Error("a closed proxy accepts again")
	}
}

func TestControlsAreSafeForConcurrentUse(t *testing.T) {
	f := setUp(t)
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := proto.Dial(f.proxy.Addr()); err == nil {
					for err == nil {
						_, err = c.Do("INCR", "n")
					}
					c.Close()
				}
			}
		})
	}
	for i := range 200 {
		d := faultproxy.Direction(i % 2)
		f.proxy.SetMode(d, faultproxy.Mode(i%3))
		f.proxy.SetDelay(d, time.Duration(i%3)*time.Microsecond)
		f.proxy.Duplicate(1)
		f.proxy.CutAfter(d, int64(i))
		f.proxy.Retarget(f.server.Addr())
		if err := errors.Join(f.proxy.Refuse(true), f.proxy.Refuse(false)); err != nil {
			t.Error(err)
		}
		f.proxy.SetMode(d, faultproxy.Pass)
		f.proxy.Cut()
	}
	close(stop)
	_ = f.proxy.Close()
	clients.Wait()
}

// fixture is an embedded server behind a proxy.
type fixture struct {
	t      *testing.T
	server *embedded.Server
	proxy  *faultproxy.Proxy
}

func setUp(t *testing.T) fixture {
	t.Helper()
	server, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	proxy, err := faultproxy.Start(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return fixture{t, server, proxy}
}

func (f fixture) dial() client {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.proxy.Addr())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return client{conn.(*net.TCPConn), bufio.NewReader(conn), f.t}
}

func (f fixture) expectValue(key, want string) {
	f.t.Helper()
	await.True(f.t, patience, key+" is "+want, func() bool { return f.get(key) == proto.String(want) })
}

func (f fixture) expectNoValue(key string) {
	f.t.Helper()
	if got := f.get(key); got != proto.Nil {
		f.t.Errorf("%s is %q", key, got)
	}
}

// get asks the server past the proxy.
func (f fixture) get(key string) string {
	f.t.Helper()
	c, err := proto.Dial(f.server.Addr())
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	reply, err := c.Do("GET", key)
	if err != nil {
		f.t.Fatal(err)
	}
	return reply
}

type client struct {
	*net.TCPConn
	r *bufio.Reader
	t *testing.T
}

// send sends the commands, one a line, in one write.
func (c client) send(commands string) {
	c.t.Helper()
	request := ""
	for line := range strings.Lines(commands) {
		request += proto.Strings(strings.Fields(line)...)
	}
	if _, err := c.Write([]byte(request)); err != nil {
		c.t.Fatal(err)
	}
}

func (c client) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	n, err := c.read(patience, got)
	if string(got[:n]) != want {
		c.t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}

// expectEventually skips what comes before.
func (c client) expectEventually(want string) {
	c.t.Helper()
	var got []byte
	one := make([]byte, 1)
	for !strings.HasSuffix(string(got), want) {
		if _, err := c.read(patience, one); err != nil {
			c.t.Fatalf("read %q, %v; want %q at its end", got, err, want)
		}
		got = append(got, one[0])
	}
}

func (c client) expectSilence() {
	c.t.Helper()
	if n, err := c.read(silence, make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func (c client) expectReset() {
	c.t.Helper()
	if n, err := c.read(patience, make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("read %d bytes, %v; want a reset", n, err)
	}
}

// expectEnd takes either kind: a server that goes down may leave a reset behind.
func (c client) expectEnd() {
	c.t.Helper()
	if n, err := c.read(patience, make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %d bytes, %v; want the end", n, err)
	}
}

func (c client) read(within time.Duration, p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	return io.ReadFull(c.r, p)
}
