package redisnode

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// connectLimit bounds the TCP and TLS handshakes. A server or network that
	// comes back is noticed when the try under way ends: so this is also about
	// how long recovery takes. No node that needs longer can vote within
	// NodeTimeout.
	connectLimit = time.Second
	// A connection without replies for quietLimit is asked with a PING, and
	// given up if that is not answered for quietLimit either; HELLO has as
	// long. Waiting for the kernel would take minutes where packets vanish.
	quietLimit = time.Second
	// maxUnanswered stays below the 1,024 places of the client's ring, which
	// blocks, whatever the caller's ctx, when it is full.
	maxUnanswered = 1000
	bufferBytes   = 64 << 10
)

var (
	errClosed = errors.New("redisnode: closed")
	// errOver is the answer to a second dial of one link: see link.
	errOver = errors.New("redisnode: the connection has ended")
)

// reconn is a Conn over rueidis that connects on first use and again after
// each end of a connection.
type reconn struct {
	target target
	life   context.Context
	end    context.CancelFunc

	mu    sync.Mutex
	link  *link // the newest, nil before the first use
	links sync.WaitGroup
}

func newConn(t target) *reconn {
	c := &reconn{target: t}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Do implements Conn.
func (c *reconn) Do(ctx context.Context, args ...string) (any, error) {
	l, err := c.connected(ctx)
	if err != nil {
		return nil, notSent(err)
	}
	return l.do(ctx, args)
}

// connected returns a link that was up a moment ago. All who ask while a dial
// is under way share that dial, each for as long as its ctx lasts.
func (c *reconn) connected(ctx context.Context) (*link, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return nil, errClosed
	}
	l := c.link
	if l == nil || l.over.Load() {
		l = &link{ready: make(chan struct{})}
		c.link = l
		c.links.Go(func() { l.run(c.life, c.target) })
	}
	c.mu.Unlock()
	select {
	case <-l.ready:
		return l, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close implements Conn.
func (c *reconn) Close() error {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.links.Wait()
	return nil
}

// link is one connection, from the dial to its end. rueidis would dial again
// by itself, with the ctx of whoever comes first and all others waiting behind
// it; a link refuses that, so that a dial has its own time and it is known
// whether a command can have been written.
type link struct {
	ready  chan struct{} // closed once the connection stands or has failed
	client rueidis.Client
	err    error
	socket *socket
	over   atomic.Bool
	// Commands are counted to know how many are unanswered: replies come in
	// order, so the latest answers for all before it.
	sent, answered atomic.Int64
}

// run connects, and cleans up after the connection has ended.
func (l *link) run(life context.Context, t target) {
	l.client, l.err = rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{t.address}, Username: t.user, Password: t.password, SelectDB: t.db,
		ForceSingleClient: true, PipelineMultiplex: -1, AlwaysPipelining: true,
		DisableRetry: true, DisableCache: true, ClientSetInfo: rueidis.DisableClientSetInfo,
		ReadBufferEachConn: bufferBytes, WriteBufferEachConn: bufferBytes,
		// The quiet before a PING, and the limit of a PING and of HELLO.
		Dialer: net.Dialer{KeepAlive: quietLimit}, ConnWriteTimeout: quietLimit,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			if l.socket != nil || l.over.Load() {
				return nil, errOver
			}
			conn, err := dial(life, t)
			if err != nil {
				return nil, err
			}
			l.socket = &socket{Conn: conn, link: l, ended: make(chan struct{})}
			// Also while HELLO is unanswered.
			l.socket.forget = context.AfterFunc(life, func() { l.socket.Close() })
			return l.socket, nil
		},
	})
	if l.err != nil {
		l.over.Store(true)
	}
	close(l.ready)
	if l.err == nil {
		<-l.socket.ended
	}
	if l.socket != nil {
		l.socket.forget()
	}
	if l.client != nil {
		l.client.Close()
	}
}

func dial(ctx context.Context, t target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	var dialer net.Dialer // with TCP keepalive by default; it resolves names anew
	conn, err := dialer.DialContext(ctx, t.network, t.address)
	if err != nil || t.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, t.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

func (l *link) do(ctx context.Context, args []string) (any, error) {
	number := l.sent.Add(1)
	if number-l.answered.Load() > maxUnanswered {
		l.socket.Close()
	}
	result := l.client.Do(ctx, l.client.B().Arbitrary(args...).Build())
	reply, err := result.ToAny()
	if errors.Is(err, errOver) {
		return nil, notSent(err)
	}
	if result.NonRedisError() == nil {
		for {
			seen := l.answered.Load()
			if number <= seen || l.answered.CompareAndSwap(seen, number) {
				break
			}
		}
	}
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return reply, err
}

// socket tells its link when it is closed, which rueidis does as soon as a
// read, a write or a PING has failed.
type socket struct {
	net.Conn
	link   *link
	once   sync.Once
	ended  chan struct{}
	forget func() bool // ends the watch over the node's life
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.link.over.Store(true)
	s.once.Do(func() { close(s.ended) })
	return s.Conn.Close()
}
