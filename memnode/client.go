package memnode

import (
	"context"

	"example.com/redlock/internal/node"
)

// Client is one of several connections to a Node: closing it leaves the node to
// the others.
type Client struct {
	node *Node
	life context.Context
	end  context.CancelFunc
}

// Client returns a connection of its own to the node, for one Locker among
// several.
func (n *Node) Client() *Client {
	c := &Client{node: n}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Name is the name of the node.
func (c *Client) Name() string { return c.node.Name() }

// Hello introduces the client to the node.
func (c *Client) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	return through(ctx, c, (*Node).Hello, h)
}

// Watch says how long the node's quarantine has been watched, and may end it.
func (c *Client) Watch(ctx context.Context, w node.Watch) (node.WatchReply, error) {
	return through(ctx, c, (*Node).Watch, w)
}

// Tokens asks for the largest number given out.
func (c *Client) Tokens(ctx context.Context, t node.Tokens) (node.TokensReply, error) {
	return through(ctx, c, (*Node).Tokens, t)
}

// Configure gives the node another configuration.
func (c *Client) Configure(ctx context.Context, conf node.Configure) (node.ConfigureReply, error) {
	return through(ctx, c, (*Node).Configure, conf)
}

// Call carries out a batch.
func (c *Client) Call(ctx context.Context, call *node.Call) (*node.Reply, error) {
	return through(ctx, c, (*Node).Call, call)
}

// Scan returns a page of the names of leases.
func (c *Client) Scan(ctx context.Context, s node.Scan) (node.ScanReply, error) {
	return through(ctx, c, (*Node).Scan, s)
}

// Line tells who waits for a name.
func (c *Client) Line(ctx context.Context, l node.Line) (node.LineReply, error) {
	return through(ctx, c, (*Node).Line, l)
}

// Examine asks the node about itself.
func (c *Client) Examine(ctx context.Context, e node.Exam) (node.ExamReply, error) {
	return through(ctx, c, (*Node).Examine, e)
}

// Listen hears what the node publishes to the client: see Node.Listen.
func (c *Client) Listen(ctx context.Context, keys node.Keyspace, client string, ready func(), got func(node.Push)) error {
	ctx, stop := c.whileOpen(ctx)
	defer stop()
	return c.node.Listen(ctx, keys, client, ready, got)
}

// Close ends the calls of this client that are under way. What has been sent is
// still carried out.
func (c *Client) Close() error {
	c.end()
	return nil
}

// through asks the node, and gives up when the connection is closed.
func through[Q, R any](ctx context.Context, c *Client, ask func(*Node, context.Context, Q) (R, error), question Q) (R, error) {
	ctx, stop := c.whileOpen(ctx)
	defer stop()
	return ask(c.node, ctx, question)
}

// whileOpen returns a child of ctx that ends when the client is closed.
func (c *Client) whileOpen(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	if c.life.Err() != nil {
		cancel()
	}
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
