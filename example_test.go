package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"example.com/redlock"
	"example.com/redlock/fence"
	"example.com/redlock/memnode"
	"example.com/redlock/quorum"
)

// charge stands for work that must not be done twice.
func charge(context.Context, string, fence.Token) error { return nil }

// This is the example of the README. It needs servers, so it only compiles here.
func ExampleOpen() {
	pay := func(ctx context.Context) error {
		// README begin
		lk, err := redlock.Open(ctx, []string{"redis://a:6379", "redis://b:6379", "redis://c:6379"}, nil)
		if err != nil {
			return err
		}
		defer lk.Close(ctx)

		return lk.Do(ctx, "invoice/42", nil, func(ctx context.Context, l *redlock.Lease) error {
			// ctx ends, with the reason, before anybody else can hold invoice/42.
			// The token lets the database refuse whoever comes late.
			return charge(ctx, "invoice/42", l.Token())
		})
		// README end
	}
	_ = pay
}

// openInMemory returns a Locker over three nodes in memory.
func openInMemory() *redlock.Locker {
	b, err := quorum.New([]quorum.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}, nil)
	if err != nil {
		log.Fatal(err)
	}
	lk, err := redlock.New(b, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := lk.Init(context.Background(), nil); err != nil { // the nodes are new
		log.Fatal(err)
	}
	return lk
}

func ExampleLocker_Do() {
	ctx := context.Background()
	lk := openInMemory()
	defer lk.Close(ctx)

	err := lk.Do(ctx, "invoice/42", nil, func(ctx context.Context, l *redlock.Lease) error {
		fmt.Println("held:", l.Name(), "until the context ends:", ctx.Err() == nil)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// held: invoice/42 until the context ends: true
	// error: <nil>
}

func ExampleLocker_TryAcquire() {
	ctx := context.Background()
	lk := openInMemory()
	defer lk.Close(ctx)

	first, err := lk.Acquire(ctx, "nightly", &redlock.AcquireOptions{Owner: "host-a", TTL: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	_, err = lk.TryAcquire(ctx, "nightly", nil)
	fmt.Println("held by another:", errors.Is(err, redlock.ErrHeld))

	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	second, err := lk.TryAcquire(ctx, "nightly", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("later token is larger:", second.Token() > first.Token())
	// Output:
	// held by another: true
	// later token is larger: true
}

// An amount goes from one account to another, and somebody may just be moving
// one the other way. Each account has its own token.
func ExampleLocker_AcquireAll() {
	ctx := context.Background()
	lk := openInMemory()
	defer lk.Close(ctx)

	leases, err := lk.AcquireAll(ctx, []string{"account/9", "account/7"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range leases.Names() {
		if err := charge(leases.Context(), name, leases.Token(name)); err != nil {
			log.Fatal(err)
		}
		fmt.Println("held:", name)
	}

	_, err = lk.AcquireAll(ctx, []string{"account/8", "account/9"}, &redlock.AcquireOptions{Wait: redlock.NoWait})
	var failed *redlock.LeasesError
	if errors.As(err, &failed) {
		fmt.Println("held by another:", failed.Failed[0].Name)
	}
	fmt.Println("error:", leases.Release(ctx))
	// Output:
	// held: account/7
	// held: account/9
	// held by another: account/9
	// error: <nil>
}

func ExampleLease_Handle() {
	ctx := context.Background()
	lk := openInMemory()
	defer lk.Close(ctx)

	lease, err := lk.Acquire(ctx, "deploy", nil)
	if err != nil {
		log.Fatal(err)
	}
	handle, err := lease.Handle() // give it to another process
	if err != nil {
		log.Fatal(err)
	}
	resumed, err := lk.Resume(ctx, handle, nil)
	if err != nil {
		log.Fatal(err)
	}
	_, err = lk.Resume(ctx, handle, nil)
	fmt.Println("a handle works once:", errors.Is(err, redlock.ErrLost))
	fmt.Println("released:", resumed.Release(ctx) == nil)
	// Output:
	// a handle works once: true
	// released: true
}
