package peers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// rawPeer is the bare algorithm and nothing else: SET NX PX on all nodes at
// once, a quorum, compare and delete. No tokens, no renewal, no check of who a
// node is, no node timeout, no validity. It bounds from above what a client that
// asks these servers, and does more, can reach on this machine.
type rawPeer struct {
	conns  []*rawConn
	quorum int
}

func openRaw(ctx context.Context, s Settings) (Peer, error) {
	p := &rawPeer{quorum: len(s.Nodes)/2 + 1}
	for _, url := range s.Nodes {
		o, err := redis.ParseURL(url)
		if err == nil && (o.Password != "" || o.DB != 0 || o.TLSConfig != nil) {
			err = errors.New("it takes plain nodes only: no password, TLS or database number")
		}
		var c *rawConn
		if err == nil {
			c, err = dialRaw(ctx, o.Network, o.Addr)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("raw: %w", err), p.Close())
		}
		p.conns = append(p.conns, c)
	}
	return p, nil
}

// retryPause bounds the random wait before a contended name is tried again.
const retryPause = 2 * time.Millisecond

func (p *rawPeer) Lock(ctx context.Context, names []string) (Unlock, error) {
	for {
		value := newValue()
		locked, err := p.ask(setFrame(names, value), len(names)).wait(ctx)
		if locked {
			return func(ctx context.Context) error {
				unlocked, err := p.ask(p.deleteFrame(names, value), len(names)).wait(ctx)
				if err == nil && !unlocked {
					err = errors.New("raw: not held by a quorum any more")
				}
				return err
			}, nil
		}
		// Each connection keeps the order, so what was just set is deleted whether
		// its reply came or not.
		p.ask(p.deleteFrame(names, value), len(names))
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(mathrand.N(retryPause)):
		}
	}
}

// ask sends one frame, with as many commands as count, to all nodes.
func (p *rawPeer) ask(frame []byte, count int) *call {
	c := &call{need: p.quorum, nodes: len(p.conns), done: make(chan struct{})}
	for _, conn := range p.conns {
		conn.send(frame, c, count)
	}
	return c
}

func (p *rawPeer) Close() error {
	var errs []error
	for _, c := range p.conns {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// call collects the votes of the nodes on one frame. A node says yes if it did
// for every name in it.
type call struct {
	need, nodes int
	done        chan struct{} // closed at the decision

	mu      sync.Mutex
	yes, no int
	decided bool
	err     error // of a node, if one failed
}

func (c *call) vote(yes bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if yes {
		c.yes++
	} else {
		c.no++
	}
	if c.err == nil {
		c.err = err
	}
	if !c.decided && (c.yes >= c.need || c.nodes-c.no < c.need) {
		c.decided = true
		close(c.done)
	}
}

// wait tells whether a quorum said yes. An error is one without which it might
// have.
func (c *call) wait(ctx context.Context) (bool, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.yes >= c.need {
		return true, nil
	}
	return false, c.err
}

func newValue() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func setFrame(names []string, value string) []byte {
	px := strconv.FormatInt(TTL.Milliseconds(), 10)
	frame := make([]byte, 0, len(names)*128)
	for _, name := range names {
		frame = appendCommand(frame, "SET", name, value, "NX", "PX", px)
	}
	return frame
}

// deleteFrame relies on all nodes naming the script alike, by its SHA-1.
func (p *rawPeer) deleteFrame(names []string, value string) []byte {
	frame := make([]byte, 0, len(names)*160)
	for _, name := range names {
		frame = appendCommand(frame, "EVALSHA", p.conns[0].script, "1", name, value)
	}
	return frame
}

func appendCommand(frame []byte, args ...string) []byte {
	frame = appendHeader(frame, '*', len(args))
	for _, arg := range args {
		frame = appendHeader(frame, '$', len(arg))
		frame = append(frame, arg...)
		frame = append(frame, '\r', '\n')
	}
	return frame
}

func appendHeader(frame []byte, kind byte, n int) []byte {
	frame = append(frame, kind)
	frame = strconv.AppendInt(frame, int64(n), 10)
	return append(frame, '\r', '\n')
}
