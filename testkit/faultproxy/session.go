package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// fate is what becomes of a connection after a piece of its stream.
type fate int

const (
	live fate = iota
	mute      // the piece is lost, the connection stays
	cut       // both ends are reset
)

// session is a client's connection and the one to the server that belongs to it.
type session struct {
	p      *Proxy
	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	client *net.TCPConn

	// Guarded by p.mu.
	server  *net.TCPConn // nil until dialled
	holed   [2]bool      // by Direction: bytes were lost
	surplus []int64      // numbers of the replies to come that the client does not expect
	closed  bool
}

// sent is a piece of the stream between the reader and the writer of a
// direction. The last one has no data: the stream ended with err.
type sent struct {
	data []byte
	due  time.Time
	err  error
}

// queueLength bounds what is under way in a direction, in reads of the socket.
// Beyond it the sender feels back pressure, as on a real network.
const queueLength = 1024

// begin starts to serve a connection.
func (p *Proxy) begin(client *net.TCPConn) {
	s := &session{p: p, client: client}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[s] = struct{}{}
	p.stats.Accepted++
	upstream := p.upstream
	p.work.Go(func() { s.run(upstream) })
}

func (s *session) run(upstream string) {
	server, err := s.dial(upstream)
	if err != nil {
		s.close(true)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { s.carry(ToServer, s.client, server) })
	both.Go(func() { s.carry(ToClient, server, s.client) })
	both.Wait()
	s.close(false)
}

// dial connects to the server, unless the session ends before.
func (s *session) dial(upstream string) (*net.TCPConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(s.ctx, "tcp", upstream)
	if err != nil {
		return nil, err
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	s.server = conn.(*net.TCPConn)
	return s.server, nil
}

// close ends the session, by a reset or in the ordinary way.
func (s *session) close(reset bool) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.closeLocked(reset)
}

func (s *session) closeLocked(reset bool) {
	if s.closed {
		return
	}
	s.closed = true
	s.cancel()
	delete(s.p.sessions, s)
	for _, conn := range []*net.TCPConn{s.client, s.server} {
		if conn == nil {
			continue
		}
		if reset {
			_ = conn.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// carry moves one direction until its end, or that of the session.
func (s *session) carry(d Direction, from, to *net.TCPConn) {
	queue := make(chan sent, queueLength)
	var reader sync.WaitGroup
	reader.Go(func() { s.read(d, from, queue) })
	defer reader.Wait()
	for {
		select {
		case <-s.ctx.Done():
			return
		case next := <-queue:
			if !s.sleep(time.Until(next.due)) || !s.deliver(d, next, to) {
				return
			}
		}
	}
}

// read queues what arrives, with the commands and replies in it counted.
func (s *session) read(d Direction, from *net.TCPConn, queue chan<- sent) {
	watch := s.watchReplies()
	if d == ToServer {
		watch = s.watchCommands()
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		due := time.Now().Add(s.p.delay(d))
		if data := watch(buf[:n]); len(data) > 0 && !s.enqueue(queue, sent{data: data, due: due}) {
			return
		}
		if err != nil {
			s.enqueue(queue, sent{due: due, err: err})
			return
		}
	}
}

// watchCommands returns what to do with each piece of a client's stream.
func (s *session) watchCommands() func([]byte) []byte {
	var cmds commands
	take := func(reply int64) bool { return s.p.takeDuplicate(s, reply) }
	return func(piece []byte) []byte {
		before := cmds.complete
		out := cmds.feed(piece, s.p.duplicating, take)
		s.p.count(func(st *Stats) {
			st.BytesIn += int64(len(piece))
			st.Commands += cmds.complete - before
		})
		return out
	}
}

// watchReplies returns what to do with each piece of the server's stream.
func (s *session) watchReplies() func([]byte) []byte {
	var reps replies
	drop := func(reply int64) bool { return s.p.takeOut(s, reply) }
	return func(piece []byte) []byte {
		s.p.count(func(st *Stats) { st.BytesOut += int64(len(piece)) })
		return reps.feed(piece, drop)
	}
}

func (s *session) enqueue(queue chan<- sent, next sent) bool {
	select {
	case queue <- next:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// deliver hands one piece on, or the end of the stream. It returns false when
// nothing more is to come.
func (s *session) deliver(d Direction, next sent, to *net.TCPConn) bool {
	pass, then := s.p.admit(s, d, len(next.data))
	switch {
	case then == mute && next.err != nil:
		<-s.ctx.Done() // a lost end leaves the other side waiting
		return false
	case then == mute:
		return true
	case errors.Is(next.err, io.EOF):
		_ = to.CloseWrite()
		return false
	case next.err != nil:
		s.close(true)
		return false
	}
	if _, err := to.Write(next.data[:pass]); err != nil || then == cut {
		s.close(true)
		return false
	}
	return true
}

// sleep returns false if the session ends first.
func (s *session) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}
