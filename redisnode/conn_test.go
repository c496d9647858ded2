package redisnode

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// An idle connection that has ended costs its next user nothing.
func TestConnectionEndedWhileIdle(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { l.Close() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			pingOnce(conn)
		}
	})
	target, err := parseURL(l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(target)
	defer c.Close()
	for range 5 {
		if reply, err := c.Do(t.Context(), "PING"); err != nil || reply != "PONG" {
			t.Fatal(reply, err)
		}
		<-c.link.socket.ended
	}
}

// pingOnce is a server that closes the connection after one PING.
func pingOnce(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.EqualFold(line, "HELLO"):
			io.WriteString(conn, "%1\r\n$5\r\nproto\r\n:3\r\n")
		case strings.EqualFold(line, "PING"):
			io.WriteString(conn, "+PONG\r\n")
			return
		}
	}
}
