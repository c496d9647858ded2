package redisnode_test

import (
	"context"
	"fmt"
	"log"

	"example.com/redlock/internal/node"
	"example.com/redlock/redisnode"
)

func Example() {
	n, err := redisnode.Open("redis://localhost:6379/0", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()

	hello, err := n.Hello(context.Background(), node.Hello{
		Keys: node.Keyspace{Namespace: "redlock"},
		Conf: node.Conf{Protocol: node.ProtocolVersion, N: 1, Q: 1, MaxTTL: 30_000},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n.Name(), hello.Standing, hello.Version)
}

// Opening does not connect, so that a node may be down when a program starts.
func ExampleOpen() {
	n, err := redisnode.Open("redis://bob:secret@Example.com", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	fmt.Println(n.Name())
	// Output: example.com:6379/0
}
