// Package memnode is a node in memory, for tests: it keeps the rules of a real
// one, and is frozen, cut off, restarted and moved in time at will.
//
// It takes the time from package time, so that it works in a bubble of
// testing/synctest, where everything happens at once and in a fixed order.
package memnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
)

// Errors of calls that a node in memory does not answer.
var (
	// ErrDown: the node is down, as a server that refuses connections.
	ErrDown = errors.New("memnode: down")
	// ErrReset: the node went down or restarted with the call unanswered.
	ErrReset = errors.New("memnode: connection reset")
	// ErrClosed: the client has closed the node.
	ErrClosed = errors.New("memnode: closed")
)

// Node is a node in memory. Its methods may be called from any goroutine.
type Node struct {
	name string

	mu     sync.Mutex
	model  *nodemodel.Node
	starts int // of the process
	shift  time.Duration
	closed bool

	frozen, down, mute bool
	durable            bool
	dropPushes         bool
	delay              time.Duration
	arriving           []*request // in the order in which they were sent
	unanswered         map[*request]struct{}
	listeners          map[*listener]struct{}
}

// request is a call on its way to the node or waiting there.
type request struct {
	due  time.Time
	run  func() // sets the caller's reply; called with the lock held
	done chan struct{}
	err  error // why there will be no reply
}

// New returns a blank node. Nodes of one lock need different names, of which
// each makes its run_ids.
func New(name string) *Node {
	n := &Node{name: name, unanswered: map[*request]struct{}{}, listeners: map[*listener]struct{}{}}
	n.model = nodemodel.New(n.nextRunID())
	return n
}

// nextRunID is as unique as a server's and the same in each run of a test.
func (n *Node) nextRunID() string {
	n.starts++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", n.name, n.starts))
	return hex.EncodeToString(sum[:20])
}

// Name is the name that New was given.
func (n *Node) Name() string { return n.name }

// Hello introduces the client to the node.
func (n *Node) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	return ask(ctx, n, func(now int64) node.HelloReply { return n.model.Hello(h, now) })
}

// Call carries out a batch.
func (n *Node) Call(ctx context.Context, c *node.Call) (*node.Reply, error) {
	// The caller may be gone, and use c again, before this arrives.
	sent := *c
	sent.Ops = slices.Clone(c.Ops)
	return ask(ctx, n, func(now int64) *node.Reply {
		reply := n.model.Apply(&sent, now)
		return &reply
	})
}

// Watch says how long the node's quarantine has been watched, and may end it.
func (n *Node) Watch(ctx context.Context, w node.Watch) (node.WatchReply, error) {
	return ask(ctx, n, func(now int64) node.WatchReply { return n.model.Watch(w, now) })
}

// Tokens asks for the largest number given out.
func (n *Node) Tokens(ctx context.Context, t node.Tokens) (node.TokensReply, error) {
	return ask(ctx, n, func(now int64) node.TokensReply { return n.model.Tokens(t, now) })
}

// Configure gives the node another configuration.
func (n *Node) Configure(ctx context.Context, c node.Configure) (node.ConfigureReply, error) {
	return ask(ctx, n, func(now int64) node.ConfigureReply { return n.model.Configure(c, now) })
}

// ask sends a request and waits for the reply that the model makes of it.
func ask[T any](ctx context.Context, n *Node, reply func(now int64) T) (T, error) {
	var r, none T
	if err := n.send(ctx, func() { r = reply(n.now()) }); err != nil {
		return none, err
	}
	return r, nil
}

// Scan returns a page of the names of leases.
func (n *Node) Scan(ctx context.Context, s node.Scan) (node.ScanReply, error) {
	return ask(ctx, n, func(now int64) node.ScanReply { return n.model.Scan(s, now) })
}

// Line tells who waits for a name.
func (n *Node) Line(ctx context.Context, l node.Line) (node.LineReply, error) {
	return ask(ctx, n, func(now int64) node.LineReply { return n.model.Line(l, now) })
}

// Examine answers as a server in good order: a node in memory has no users, no
// disk unless Durable says so, and no other keys than its own.
func (n *Node) Examine(ctx context.Context, _ node.Exam) (node.ExamReply, error) {
	return ask(ctx, n, func(int64) node.ExamReply {
		enabled := "0"
		if n.durable {
			enabled = "1"
		}
		return node.ExamReply{
			Info:   map[string]string{"aof_enabled": enabled},
			Config: map[string]string{"appendfsync": "always", "save": ""},
		}
	})
}

// Close ends the calls under way. What has been sent is still carried out.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.hangUp(ErrClosed)
	return nil
}

// send lets run happen at the node and waits for that.
func (n *Node) send(ctx context.Context, run func()) error {
	r, err := n.enqueue(ctx, run)
	if err != nil {
		return &node.CallError{Err: err}
	}
	select {
	case <-r.done:
		err = r.err
	case <-ctx.Done():
		n.mu.Lock()
		delete(n.unanswered, r)
		n.mu.Unlock()
		err = ctx.Err()
	}
	if err != nil {
		return &node.CallError{Sent: true, Err: err}
	}
	return nil
}

func (n *Node) enqueue(ctx context.Context, run func()) (*request, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case n.down:
		return nil, ErrDown
	}
	r := &request{due: time.Now().Add(n.delay), run: run, done: make(chan struct{})}
	n.arriving = append(n.arriving, r)
	n.unanswered[r] = struct{}{}
	if n.delay > 0 {
		time.AfterFunc(n.delay, n.arrive)
	}
	n.serve()
	return r, nil
}

func (n *Node) arrive() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.serve()
}

// serve carries out what has arrived, strictly in order: one connection.
func (n *Node) serve() {
	for !n.frozen && len(n.arriving) > 0 && !n.arriving[0].due.After(time.Now()) {
		r := n.arriving[0]
		n.arriving = n.arriving[1:]
		r.run()
		n.publish()
		if !n.mute {
			n.answer(r, nil)
		}
	}
}

// answer ends the wait of the caller, who may have left.
func (n *Node) answer(r *request, err error) {
	if _, waiting := n.unanswered[r]; waiting {
		delete(n.unanswered, r)
		r.err = err
		close(r.done)
	}
}

// hangUp ends all connections.
func (n *Node) hangUp(err error) {
	n.cutListeners(err)
	for r := range n.unanswered {
		n.answer(r, err)
	}
}

// now is the node's clock in microseconds since 1970.
func (n *Node) now() int64 { return time.Now().Add(n.shift).UnixMicro() }
