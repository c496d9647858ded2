package integration

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

// TestB93ANameThatMoves: a node is replaced by one at another address behind the
// same name. The next connection asks for the name anew.
func TestB93ANameThatMoves(t *testing.T) {
	var addr atomic.Value
	addr.Store(netip.MustParseAddr("127.0.0.1"))
	serveNames(t, &addr)

	first := start(t, 1)
	_, port, err := net.SplitHostPort(first.servers[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	lk := open(t, []string{"redis://node.test:" + port}, nil)
	release(t, take(t, lk, "x", nil))

	// The same port at another of loopback's addresses.
	second, err := redisserver.Start(t.Context(), redisserver.Options{Args: []string{"--bind", "127.0.0.2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Stop() })
	_, other, err := net.SplitHostPort(second.Addr())
	if err != nil {
		t.Fatal(err)
	}
	relay(t, "127.0.0.3:"+port, "127.0.0.2:"+other)
	addr.Store(netip.MustParseAddr("127.0.0.3"))
	first.kill(0)
	await.True(t, patience, "a lease from the server that the name means now", func() bool {
		l, err := lk.TryAcquire(context.Background(), "x", &redlock.AcquireOptions{MaxAttempts: 1})
		if err != nil {
			_, _ = lk.Init(context.Background(), &redlock.InitOptions{Force: true}) // it is blank
			return false
		}
		release(t, l)
		return true
	})
}

// relay passes connections on, so that a server is reached under a port of ours.
func relay(t *testing.T, from, to string) {
	l, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			t.Cleanup(func() { _ = in.Close(); _ = out.Close() })
			go copyAll(in, out)
			go copyAll(out, in)
		}
	}()
}

func copyAll(dst, src net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = dst.Close()
			return
		}
	}
}

// serveNames makes this process ask a name server of our own, which answers
// every question for an IPv4 address with addr.
func serveNames(t *testing.T, addr *atomic.Value) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	done := make(chan struct{})
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := answerName(buf[:n], addr.Load().(netip.Addr)); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
}

// answerName answers a question of the domain name system (RFC 1035).
func answerName(query []byte, addr netip.Addr) []byte {
	const header = 12
	end := header
	for end < len(query) && query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5 // the name's end, type and class
	if end > len(query) {
		return nil
	}
	reply := append([]byte(nil), query[:end]...)
	reply[2], reply[3] = 0x84, 0 // an answer with authority
	clear(reply[6:header])
	const typeA = 1
	if binary.BigEndian.Uint16(query[end-4:]) != typeA {
		return reply // no such record
	}
	reply[7] = 1
	ip := addr.As4()
	// A pointer to the name, type A, class IN, no time to live, four bytes.
	return append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4, ip[0], ip[1], ip[2], ip[3])
}
