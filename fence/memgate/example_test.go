package memgate_test

import (
	"context"
	"fmt"

	"example.com/redlock/fence"
	"example.com/redlock/fence/memgate"
)

// The gate is opened with the token of the lease, before anything is read.
func Example() {
	ctx := context.Background()
	stock := memgate.New(10)
	sell := func(w *memgate.Writer[int], n int) error {
		return w.Do(ctx, func(left *int) error {
			*left -= n
			fmt.Println("left:", *left)
			return nil
		})
	}
	open := func(token fence.Token) *memgate.Writer[int] {
		w, err := stock.Open(ctx, token) // lease.Token()
		if err != nil {
			fmt.Println(err)
		}
		return w
	}

	first := open(33)
	fmt.Println(sell(first, 1))
	// The first holder falls asleep; its lease runs out, and the next one comes.
	second := open(34)
	fmt.Println(sell(second, 3))
	fmt.Println(sell(first, 1))
	// Output:
	// left: 9
	// <nil>
	// left: 6
	// <nil>
	// fence: exclusive token 33 is stale: the gate was opened with exclusive token 34
}
