package redisnode

import (
	"context"
	"crypto/tls"
	"strings"
	"sync/atomic"

	"example.com/redlock/internal/node"
)

// Conn is one connection to a server. It may be made and made again as
// needed.
type Conn interface {
	// Do sends one command and returns the reply: nil, int64, string, or []any
	// of these. A server's error reply is an error whose text contains the
	// server's. An error that wraps ErrNotSent promises that nothing was
	// written.
	//
	// Do returns when ctx ends, whatever the server does; the command may be
	// carried out after that, but a ctx that has ended before sends nothing. Do
	// is safe for concurrent use, and commands begun one after the other reach
	// the server in that order as long as the connection lasts. Do never sends a
	// command twice.
	Do(ctx context.Context, args ...string) (any, error)
	// Listen subscribes to the channel, on a connection of its own, and returns when
	// ctx ends or that connection does. It calls ready when the server has confirmed
	// the subscription, then got for each message, in order; neither blocks. It does
	// not connect again, and notices within seconds that a server is silent.
	Listen(ctx context.Context, channel string, ready func(), got func(message string)) error
	// Close gives the connections up. Commands under way fail.
	Close() error
}

// Options are the choices of Open. Nil means all defaults.
type Options struct {
	// TLS is for rediss URLs. Nil means the system's roots and the host of the
	// URL as the name to verify.
	TLS *tls.Config
}

// Node is a server as a node of a lock.
type Node struct {
	name      string
	conn      Conn
	call      script
	hello     script
	watch     script
	tokens    script
	configure script
	leases    script
	waiters   script
	evalOnly  atomic.Bool
}

// Open returns the node at rawURL. It does no I/O: the first use connects, and
// a server that is down is an error of each use until it is back. A bad URL is
// an error that quotes no credentials.
//
// These are URLs:
//
//	redis://user:password@host:6379/0
//	rediss://host                      TLS
//	unix:///run/redis.sock?db=0        unix://user:password@/run/redis.sock
//	host:6379
//
// The port is 6379 by default, the database 0; it may also be given as ?db=N.
// User and password are percent-decoded where they are validly encoded, and
// may contain any character; a colon in the user must be encoded.
func Open(rawURL string, o *Options) (*Node, error) {
	if o == nil {
		o = &Options{}
	}
	t, err := parseURL(rawURL, o.TLS)
	if err != nil {
		return nil, err
	}
	return New(newConn(t), t.name), nil
}

// New returns the node that conn connects to. The name is for people and for
// the configuration that clients of the node share: host:port/db, lower case,
// without credentials. The Node closes conn.
func New(conn Conn, name string) *Node {
	n := &Node{name: name, conn: conn}
	n.call.source = source("common", "lease", "line", "call")
	for name, s := range map[string]*script{"hello": &n.hello, "watch": &n.watch, "leases": &n.leases, "waiters": &n.waiters} {
		s.source = source("common", name)
	}
	for name, s := range map[string]*script{"tokens": &n.tokens, "configure": &n.configure} {
		s.source = source("common", "counters", name)
	}
	return n
}

// Name is the address without credentials: host:port/db, or path/db.
func (n *Node) Name() string { return n.name }

// Hello introduces the client to the node.
func (n *Node) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	r, err := ask(ctx, n, &n.hello, encodeHello(h), decodeHello)
	if err != nil && isUnknown(err) && n.isSentinel(ctx) {
		err = &node.CallError{Mode: "sentinel", Err: err}
	}
	return r, err
}

// isSentinel reports whether the server is a sentinel. It knows no scripts,
// which alone would look like a lack of rights.
func (n *Node) isSentinel(ctx context.Context) bool {
	reply, err := n.conn.Do(ctx, "INFO", "server")
	text, _ := reply.(string)
	return err == nil && strings.Contains(text, "redis_mode:sentinel")
}

// Call carries out a batch.
func (n *Node) Call(ctx context.Context, c *node.Call) (*node.Reply, error) {
	return ask(ctx, n, &n.call, encodeCall(c), func(reply any) (*node.Reply, error) { return decodeCall(c, reply) })
}

// Watch says how long the node's quarantine has been watched, and may end it.
func (n *Node) Watch(ctx context.Context, w node.Watch) (node.WatchReply, error) {
	return ask(ctx, n, &n.watch, encodeWatch(w), decodeWatch)
}

// Tokens asks for the largest number given out.
func (n *Node) Tokens(ctx context.Context, t node.Tokens) (node.TokensReply, error) {
	return ask(ctx, n, &n.tokens, encodeTokens(t), decodeTokens)
}

// Configure gives the node another configuration.
func (n *Node) Configure(ctx context.Context, c node.Configure) (node.ConfigureReply, error) {
	return ask(ctx, n, &n.configure, encodeConfigure(c), decodeConfigure)
}

// Line tells who waits for a name.
func (n *Node) Line(ctx context.Context, l node.Line) (node.LineReply, error) {
	return ask(ctx, n, &n.waiters, encodeLine(l), decodeLine)
}

// ask runs a script and reads its reply. An error is a *node.CallError.
func ask[T any](ctx context.Context, n *Node, s *script, args []string, decode func(any) (T, error)) (T, error) {
	var none T
	reply, err := n.run(ctx, s, args)
	if err != nil {
		return none, callError(err)
	}
	r, err := decode(reply)
	if err != nil {
		return none, &node.CallError{Sent: true, Err: err}
	}
	return r, nil
}

// Scan returns a page of the names of leases. It takes one command or, with plain
// keys, whose values tell which are leases, two.
func (n *Node) Scan(ctx context.Context, s node.Scan) (node.ScanReply, error) {
	reply, err := n.conn.Do(ctx, encodeScan(s)...)
	if err != nil {
		return node.ScanReply{}, callError(err)
	}
	keys, next, err := decodeScan(reply)
	if err == nil && s.Keys.Plain && len(keys) > 0 {
		if reply, err = n.run(ctx, &n.leases, encodeLeases(keys)); err != nil {
			return node.ScanReply{}, callError(err)
		}
		keys, err = decodeList(reply)
	}
	if err != nil {
		return node.ScanReply{}, &node.CallError{Sent: true, Err: err}
	}
	r := node.ScanReply{Next: next}
	for _, key := range keys {
		if name, ok := s.Keys.Name(key); ok {
			r.Names = append(r.Names, name)
		}
	}
	return r, nil
}

// Close closes the connection. Calls under way fail.
func (n *Node) Close() error { return n.conn.Close() }
