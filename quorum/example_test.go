package quorum_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
	"example.com/redlock/quorum"
)

// A quorum is the backend of a redlock.Locker. It can be used by itself, too.
func Example() {
	ctx := context.Background()
	nodes := []quorum.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
	b, err := quorum.New(nodes, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)
	b.Init(ctx, backend.InitOptions{}) // the nodes are new

	lease, err := b.Acquire(ctx, backend.Request{Name: "x", TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("valid for more than nine seconds:", time.Until(lease.Deadline()) > 9*time.Second)
	fmt.Println("released:", lease.Release(ctx) == nil)
	// Output:
	// valid for more than nine seconds: true
	// released: true
}
