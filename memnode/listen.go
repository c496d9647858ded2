package memnode

import (
	"context"

	"example.com/redlock/internal/node"
)

// listener is a connection over which a client hears of its waiters.
type listener struct {
	client string
	heard  []node.Push   // and not yet told
	wake   chan struct{} // holds one, if there is something to tell
	over   chan struct{} // closed when the connection ends
	err    error         // why it did
}

// Listen hears what the node publishes to the client until ctx ends or the connection
// does, as by CutListeners: it returns why. It calls ready once the node publishes to
// it, and then got for each name handed to one of the client's waiters, in order.
func (n *Node) Listen(ctx context.Context, _ node.Keyspace, client string, ready func(), got func(node.Push)) error {
	l := &listener{client: client, wake: make(chan struct{}, 1), over: make(chan struct{})}
	defer n.hangUpListener(l)
	err := n.send(ctx, func() {
		if ctx.Err() == nil { // else nobody would end it
			n.listeners[l] = struct{}{}
			n.model.Listen(client, true)
		}
	})
	if err != nil {
		return err
	}
	ready()
	for {
		select {
		case <-l.wake:
			for _, p := range n.take(l) {
				got(p)
			}
		case <-l.over:
			return &node.CallError{Sent: true, Err: l.err}
		case <-ctx.Done():
			return &node.CallError{Sent: true, Err: ctx.Err()}
		}
	}
}

// take returns what the listener has not been told yet.
func (n *Node) take(l *listener) []node.Push {
	n.mu.Lock()
	defer n.mu.Unlock()
	heard := l.heard
	l.heard = nil
	return heard
}

// publish brings what the node has published to those who listen.
func (n *Node) publish() {
	for _, p := range n.model.TakePushes() {
		for l := range n.listeners {
			if l.client != p.Client || n.dropPushes {
				continue
			}
			l.heard = append(l.heard, p)
			select {
			case l.wake <- struct{}{}:
			default: // it has been woken already
			}
		}
	}
}

func (n *Node) cutListeners(err error) {
	for l := range n.listeners {
		l.err = err
		close(l.over)
		n.forget(l)
	}
}

func (n *Node) hangUpListener(l *listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget(l)
}

// forget lets the node know that the listener is gone.
func (n *Node) forget(l *listener) {
	delete(n.listeners, l)
	for other := range n.listeners {
		if other.client == l.client {
			return
		}
	}
	n.model.Listen(l.client, false)
}
