package redisnode

import (
	"context"

	"github.com/redis/rueidis"

	"example.com/redlock/internal/node"
)

// Listen hears what the node publishes to the client, on a connection of its own,
// until ctx ends or the connection does: it returns why. It calls ready once the node
// publishes to it, and then got for each name that is handed to one of the client's
// waiters, in order. Neither may block: what answers the server's silence would wait.
func (n *Node) Listen(ctx context.Context, keys node.Keyspace, client string, ready func(), got func(node.Push)) error {
	return callError(n.conn.Listen(ctx, keys.Channel(client), ready, func(message string) {
		// Whoever may publish on the channel can say anything.
		if p, err := decodePush(client, message); err == nil {
			got(p)
		}
	}))
}

// Listen implements Conn.
func (c *reconn) Listen(ctx context.Context, channel string, ready func(), got func(message string)) error {
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return notSent(errClosed)
	}
	life, end := context.WithCancel(c.life)
	stop := context.AfterFunc(ctx, end)
	defer stop()
	l, over := &link{ready: make(chan struct{})}, make(chan struct{})
	c.links.Go(func() {
		defer close(over)
		l.run(life, c.target)
	})
	c.mu.Unlock()
	<-l.ready
	err := l.err
	if err == nil {
		err = l.receive(ctx, channel, ready, got)
	}
	end()
	<-over
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// receive subscribes, and returns when that ends.
func (l *link) receive(ctx context.Context, channel string, ready func(), got func(message string)) error {
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			ready()
		}
	})
	subscribe := l.client.B().Subscribe().Channel(channel).Build()
	err := l.client.Receive(ctx, subscribe, func(m rueidis.PubSubMessage) { got(m.Message) })
	if err == nil {
		err = errOver
	}
	return err
}
