package quorum

import (
	"context"

	"example.com/redlock/internal/node"
)

// Node is one master: redisnode has the real one, memnode one in memory. The
// operations it carries out are the project's own protocol, which is not open
// to other implementations; to bring another Redis client, implement
// redisnode.Conn.
type Node interface {
	// Name is the node's address for people and for the configuration:
	// host:port/db, without credentials.
	Name() string
	// Hello introduces the client. An error is a *node.CallError.
	Hello(ctx context.Context, h node.Hello) (node.HelloReply, error)
	// Call carries out a batch, in order, in one step. Calls that were begun
	// in some order on one Node reach the server in that order while its
	// connection lasts. An error is a *node.CallError.
	Call(ctx context.Context, c *node.Call) (*node.Reply, error)
	// Watch takes a client's part in ending a quarantine. An error is a
	// *node.CallError.
	Watch(ctx context.Context, w node.Watch) (node.WatchReply, error)
	// Tokens asks for the largest number given out. An error is a
	// *node.CallError.
	Tokens(ctx context.Context, t node.Tokens) (node.TokensReply, error)
	// Configure gives the node another configuration. An error is a
	// *node.CallError.
	Configure(ctx context.Context, c node.Configure) (node.ConfigureReply, error)
	// Scan returns a page of the names of leases, in an order of the node's
	// own. An error is a *node.CallError.
	Scan(ctx context.Context, s node.Scan) (node.ScanReply, error)
	// Line tells who waits for a name. An error is a *node.CallError.
	Line(ctx context.Context, l node.Line) (node.LineReply, error)
	// Examine asks the node about itself, for Doctor. An error is a
	// *node.CallError.
	Examine(ctx context.Context, e node.Exam) (node.ExamReply, error)
	// Listen subscribes to what the node hands to the waiters of client, on a
	// connection of its own. It calls ready once the node has acknowledged that, and
	// got for each push, in order. It returns when ctx or the connection ends.
	Listen(ctx context.Context, keys node.Keyspace, client string, ready func(), got func(node.Push)) error
	// Close gives up the connection. Calls under way fail.
	Close() error
}
