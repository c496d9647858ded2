// Package faultproxy stands between clients and one server and does to their
// connections what networks do: delays, black holes, lost replies, resets,
// refused connections, and requests that arrive twice.
//
// All controls work on a live proxy and may be used from any goroutine. What
// they say holds for connections that exist and for those to come.
package faultproxy

import (
	"fmt"
	"net"
	"sync"
	"time"

	"example.com/redlock/testkit/internal/loopback"
)

// Direction is one of the two ways through a proxy.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// Mode says what becomes of the bytes in a direction.
type Mode int

// The modes. Neither Hold nor Swallow closes or resets anything, and both keep
// the end of a connection from the other side too.
const (
	// Pass delivers them.
	Pass Mode = iota
	// Hold keeps them until the next Pass, as a network does that comes back
	// before anybody gives up.
	Hold
	// Swallow loses them. A stream with a hole in it never goes on: a connection
	// that lost something is cut when the mode changes.
	Swallow
)

// Stats count since Start. Bytes and commands are counted as they reach the
// proxy, whatever becomes of them.
type Stats struct {
	Accepted   int   // connections
	Open       int   // connections now
	BytesIn    int64 // from clients
	BytesOut   int64 // from the server
	Commands   int64 // from clients, complete; means nothing if they do not speak RESP
	Duplicated int64 // commands that the server answered twice
}

// Proxy passes connections on to its upstream until told otherwise.
type Proxy struct {
	port int
	work sync.WaitGroup // all goroutines but the accepting one

	life      sync.Mutex // serializes Refuse and Close
	listener  net.Listener
	accepting sync.WaitGroup
	closed    bool

	mu         sync.Mutex
	upstream   string
	lanes      [2]lane // by Direction
	duplicates int     // commands still to be sent twice
	sessions   map[*session]struct{}
	stats      Stats
}

// lane is what the controls say about one direction.
type lane struct {
	mode    Mode
	changed chan struct{} // closed when the mode changes
	delay   time.Duration
	cut     int64 // bytes until a cut; negative: none
}

// Start starts a proxy on a free loopback port, in front of the server at
// upstream, a host:port. It ends with Close.
func Start(upstream string) (*Proxy, error) {
	l, err := loopback.Listen(0)
	if err != nil {
		return nil, fmt.Errorf("faultproxy: start: %w", err)
	}
	p := &Proxy{
		port:     l.Addr().(*net.TCPAddr).Port,
		upstream: upstream,
		sessions: map[*session]struct{}{},
	}
	for d := range p.lanes {
		p.lanes[d] = lane{changed: make(chan struct{}), cut: -1}
	}
	p.accept(l)
	return p, nil
}

// Addr returns host:port, for clients.
func (p *Proxy) Addr() string { return loopback.Addr(p.port) }

// URL returns the address in the form that redlock.Open takes.
func (p *Proxy) URL() string { return "redis://" + p.Addr() }

// SetDelay delivers what arrives from now on that much later. It lengthens the
// way and does not narrow it: any number of bytes may be under way.
func (p *Proxy) SetDelay(d Direction, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lanes[d].delay = delay
}

// SetMode says what becomes of what is to be delivered from now on. Swallow
// ToClient is "the request is carried out, the reply is lost".
func (p *Proxy) SetMode(d Direction, m Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.lanes[d]
	if l.mode == m {
		return
	}
	l.mode = m
	close(l.changed)
	l.changed = make(chan struct{})
	for s := range p.sessions {
		if s.holed[d] {
			s.closeLocked(true)
		}
	}
}

// CutAfter lets n more bytes pass in the direction, over all connections. The
// connection with the byte after them is cut in its place, both ends of it by a
// reset. So zero ToClient carries out a request and resets in place of the
// reply. A negative n calls it off.
func (p *Proxy) CutAfter(d Direction, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lanes[d].cut = n
}

// Cut resets all connections, both ends of them.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sessions {
		s.closeLocked(true)
	}
}

// Duplicate sends each of the next n commands to the server twice in a row. The
// client sees one reply, that of the second. Connections that subscribe are
// spared.
func (p *Proxy) Duplicate(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.duplicates = n
}

// Retarget sends connections to another upstream from now on. Those that exist
// stay; Cut makes their clients come again.
func (p *Proxy) Retarget(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stats
	st.Open = len(p.sessions)
	return st
}

// Refuse makes the port refuse new connections, as if nobody listened there, or
// accept them again. It is an error if the port cannot be had back.
func (p *Proxy) Refuse(on bool) error {
	p.life.Lock()
	defer p.life.Unlock()
	switch {
	case p.closed:
		return fmt.Errorf("faultproxy: %s is closed", p.Addr())
	case on:
		p.stopAccepting()
	case p.listener == nil:
		l, err := loopback.Listen(p.port)
		if err != nil {
			return fmt.Errorf("faultproxy: accept again: %w", err)
		}
		p.accept(l)
	}
	return nil
}

// Close cuts all connections and ends the proxy. Closing twice is fine.
func (p *Proxy) Close() error {
	p.life.Lock()
	defer p.life.Unlock()
	p.closed = true
	p.stopAccepting()
	p.Cut()
	p.work.Wait()
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	p.listener = l
	p.accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.begin(conn.(*net.TCPConn))
		}
	})
}

func (p *Proxy) stopAccepting() {
	if p.listener == nil {
		return
	}
	_ = p.listener.Close()
	p.accepting.Wait()
	p.listener = nil
}

func (p *Proxy) duplicating() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.duplicates > 0
}

// takeDuplicate tells whether the session may send a command twice, and makes a
// note of the reply to take out.
func (p *Proxy) takeDuplicate(s *session, reply int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.duplicates <= 0 {
		return false
	}
	p.duplicates--
	s.surplus = append(s.surplus, reply)
	return true
}

// takeOut tells whether a reply is one that the client does not expect.
func (p *Proxy) takeOut(s *session, reply int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(s.surplus) == 0 || s.surplus[0] != reply {
		return false
	}
	s.surplus = s.surplus[1:]
	p.stats.Duplicated++
	return true
}

func (p *Proxy) count(add func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(&p.stats)
}

func (p *Proxy) delay(d Direction) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lanes[d].delay
}

// admit waits while the direction holds. Then it tells how many of n bytes may
// go on, and what becomes of the connection after them.
func (p *Proxy) admit(s *session, d Direction, n int) (pass int, then fate) {
	for {
		p.mu.Lock()
		pass, then, changed := p.admitLocked(s, d, n)
		p.mu.Unlock()
		if changed == nil {
			return pass, then
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return 0, mute
		}
	}
}

// admitLocked is one look of admit. It returns the channel to wait for if the
// direction holds.
func (p *Proxy) admitLocked(s *session, d Direction, n int) (pass int, then fate, changed <-chan struct{}) {
	l := &p.lanes[d]
	switch {
	case l.mode == Hold:
		return 0, mute, l.changed
	case l.mode == Swallow:
		s.holed[d] = true
		return 0, mute, nil
	case l.cut >= 0 && int64(n) > l.cut:
		pass, l.cut = int(l.cut), -1
		return pass, cut, nil
	case l.cut >= 0:
		l.cut -= int64(n)
	}
	return n, live, nil
}
