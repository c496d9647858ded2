package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const deleteScript = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// maxUnsent is how many bytes may gather for a node that does not read. What
// comes after them is not sent and counts as a no: a frozen node must not cost
// the memory of the client.
const maxUnsent = 1 << 20

var (
	errUnsent = errors.New("raw: the node does not read")
	errClosed = errors.New("raw: the connection is closed")
)

// rawConn is one connection to one node, shared by all goroutines. What they
// send while a write is under way leaves together with the next.
type rawConn struct {
	conn   net.Conn
	script string // the SHA-1 of deleteScript, as the node told it
	wake   chan struct{}
	broken chan struct{} // closed when err is set
	loops  sync.WaitGroup

	mu      sync.Mutex
	unsent  []byte
	waiting []waiting // for replies, in their order
	err     error     // of the connection, once it is broken
}

// waiting is a call and how many replies it still gets on this connection.
type waiting struct {
	call    *call
	replies int
}

func dialRaw(ctx context.Context, network, addr string) (*rawConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetReadDeadline(deadline)
	}
	r := bufio.NewReader(conn)
	_, err = conn.Write(appendCommand(nil, "SCRIPT", "LOAD", deleteScript))
	length, sha := "", ""
	if err == nil {
		length, err = r.ReadString('\n')
	}
	if err == nil && !strings.HasPrefix(length, "$40") {
		err = fmt.Errorf("SCRIPT LOAD: %s", strings.TrimSpace(length))
	}
	if err == nil {
		sha, err = r.ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	_ = conn.SetReadDeadline(time.Time{})
	c := &rawConn{conn: conn, script: strings.TrimSpace(sha), wake: make(chan struct{}, 1), broken: make(chan struct{})}
	c.loops.Go(c.write)
	c.loops.Go(func() { c.read(r) })
	return c, nil
}

// send puts a frame of count commands on its way. The votes go to the call.
func (c *rawConn) send(frame []byte, call *call, count int) {
	c.mu.Lock()
	err := c.err
	if err == nil && len(c.unsent) > maxUnsent {
		err = errUnsent
	}
	if err == nil {
		c.unsent = append(c.unsent, frame...)
		c.waiting = append(c.waiting, waiting{call, count})
	}
	c.mu.Unlock()
	if err != nil {
		call.vote(false, err)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default: // the writer is awake
	}
}

func (c *rawConn) write() {
	var frames []byte
	for {
		select {
		case <-c.wake:
		case <-c.broken:
			return
		}
		c.mu.Lock()
		frames, c.unsent = c.unsent, frames[:0]
		c.mu.Unlock()
		if _, err := c.conn.Write(frames); err != nil {
			c.fail(err)
			return
		}
	}
}

// read gives each reply, which is one line whatever it says, to the call that
// is next in line.
func (c *rawConn) read(r *bufio.Reader) {
	yes := true
	var nodeErr error
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			c.fail(err)
			return
		}
		switch {
		case line[0] == '-':
			yes, nodeErr = false, errors.New("raw: "+strings.TrimSpace(string(line[1:])))
		case line[0] != '+' && string(line) != ":1\r\n":
			yes = false
		}
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.mu.Unlock()
			c.fail(errors.New("raw: a reply that nobody asked for"))
			return
		}
		head := &c.waiting[0]
		head.replies--
		call, whole := head.call, head.replies == 0
		if whole {
			c.waiting = c.waiting[1:]
		}
		c.mu.Unlock()
		if whole {
			call.vote(yes, nodeErr)
			yes, nodeErr = true, nil
		}
	}
}

// fail answers all calls that wait, and all that come, with err.
func (c *rawConn) fail(err error) {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		err = errClosed
	}
	c.mu.Lock()
	if c.err == nil {
		c.err = err
		close(c.broken)
	}
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, w := range waiting {
		w.call.vote(false, err)
	}
}

func (c *rawConn) close() error {
	err := c.conn.Close()
	c.fail(errClosed)
	c.loops.Wait()
	return err
}
