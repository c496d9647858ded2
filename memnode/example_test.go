package memnode_test

import (
	"context"
	"fmt"
	"time"

	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// A node that restarts without its data grants a name that is still held: what
// a lock over several nodes has to survive.
func Example() {
	ctx := context.Background()
	n := memnode.New("a:6379/0")
	defer n.Close()

	keys := node.Keyspace{Namespace: "redlock"}
	conf := node.Conf{Protocol: node.ProtocolVersion, N: 1, Q: 1, MaxTTL: 30_000}
	acquire := func(id string) node.Code {
		hello, err := n.Hello(ctx, node.Hello{Keys: keys, Conf: conf, Intent: node.Declare})
		if err != nil {
			return node.Failed
		}
		reply, err := n.Call(ctx, &node.Call{Keys: keys, Guard: hello.Guard, MaxTTL: conf.MaxTTL, Ops: []node.Op{
			{Kind: node.Acquire, Name: "invoice/42", ID: id, TTL: 10_000},
		}})
		if err != nil {
			return node.Failed
		}
		return reply.Answers[0].Code
	}

	fmt.Println(acquire("11111111111111111111111111111111"))
	fmt.Println(acquire("22222222222222222222222222222222"))
	n.Restart(false)
	fmt.Println(acquire("22222222222222222222222222222222"))
	n.ShiftClock(11 * time.Second)
	fmt.Println(acquire("11111111111111111111111111111111"))
	// Output:
	// granted
	// held
	// granted
	// granted
}
