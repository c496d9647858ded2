// Package embedded runs nodes inside this process, on miniredis: for tests that
// need no real server, and for the demo.
//
// What miniredis lacks for a node of a lock is supplied here: INFO with the
// sections that identify a server, a clock that can be moved while it runs and
// takes the expiry of keys with it both ways, and a restart that is noticed by
// a new run_id and an empty script cache.
package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"example.com/redlock/testkit/internal/loopback"
)

// Options say how to start a server. The zero value is a server on a free port.
type Options struct {
	Port int // on the loopback interface; 0: a free one
}

// Server is an embedded node. Its methods may be called from any goroutine.
type Server struct {
	clock clock
	port  int

	mu sync.Mutex
	instance
	closed bool
}

// Start starts an empty server. It ends with Close.
func Start(o Options) (*Server, error) {
	l, err := loopback.Listen(o.Port)
	if err != nil {
		return nil, fmt.Errorf("embedded: start: %w", err)
	}
	s := &Server{port: l.Addr().(*net.TCPAddr).Port}
	s.clock.now = time.Now
	if err := s.begin(newRedis(&s.clock), l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

// Addr returns host:port.
func (s *Server) Addr() string { return loopback.Addr(s.port) }

// URL returns the address in the form that redlock.Open takes.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// RunID returns the run_id that INFO tells, new with each start.
func (s *Server) RunID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runID
}

// Now returns the time that the server believes it is.
func (s *Server) Now() time.Time {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return s.clock.now()
}

// SetTime moves the server's clock to t and stops it there. As on a real server
// whose clock is set, keys expire at the time of day that was fixed when they
// were written: earlier when the clock jumps forward, later when it jumps back.
func (s *Server) SetTime(t time.Time) {
	s.setClock(func() time.Time { return t })
}

// SetOffset lets the server's clock run, off the clock of this process by d.
// Keys are treated as by SetTime. Zero undoes all that was done to the clock.
func (s *Server) SetOffset(d time.Duration) {
	s.setClock(func() time.Time { return time.Now().Add(d) })
}

func (s *Server) setClock(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.set(s.redis, now)
}

// Restart cuts all connections and starts the server again on the same port,
// with a new run_id and an empty script cache. Its data are kept if keep says
// so, as by a server that persists each write. A closed server is an error.
func (s *Server) Restart(keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("embedded: restart of %s: it was closed", s.Addr())
	}
	s.end()
	l, err := loopback.Listen(s.port)
	if err != nil {
		return fmt.Errorf("embedded: restart: %w", err)
	}
	redis := s.redis
	if !keep {
		redis = newRedis(&s.clock)
	}
	return s.begin(redis, l)
}

// Close cuts all connections and ends the server. Closing twice is fine.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.end()
	}
	return nil
}

// instance is what lasts from one start of the server to its end.
type instance struct {
	redis    *miniredis.Miniredis
	listener net.Listener
	accepts  sync.WaitGroup
	runID    string
}

func newRedis(c *clock) *miniredis.Miniredis {
	redis := miniredis.NewMiniRedis()
	redis.SetTime(c.now()) // first: the ticks of ClockTTL count from here
	redis.ClockTTL(true)
	return redis
}

// begin serves redis on the listener. It does not use miniredis's own listener,
// which serves connections before the hook is in place.
func (s *Server) begin(redis *miniredis.Miniredis, l net.Listener) error {
	s.redis, s.listener, s.runID = redis, l, randomHex()
	seed, err := redis.Dial() // starts the server without a listener
	if err != nil {
		return fmt.Errorf("embedded: start: %w", err)
	}
	_ = seed.Close()

	srv := redis.Server()
	srv.SetPreHook((&hook{redis: redis, clock: &s.clock, info: info(s.runID)}).run)
	flush := []string{"SCRIPT", "FLUSH"} // data may persist, scripts never do
	srv.Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), flush)

	s.accepts.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			srv.ServeConn(conn)
		}
	})
	return nil
}

func (s *Server) end() {
	_ = s.listener.Close()
	s.accepts.Wait() // miniredis must see no new connection while it closes
	s.redis.Close()
}
