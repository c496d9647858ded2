package redisgate_test

import (
	"context"
	"fmt"

	"example.com/redlock/fence"
	"example.com/redlock/fence/redisgate"
)

// The commands of one lease go through the gate that was opened with its token.
// It needs a server, so it only compiles here. With go-redis, Conn is
// client.Do(ctx, args...).Result() with the arguments as []any.
func Example() {
	sell := func(ctx context.Context, conn redisgate.Conn, token fence.Token) error {
		gate, err := redisgate.New(conn, "fruit")
		if err != nil {
			return err
		}
		w, err := gate.Open(ctx, token) // lease.Token(); before the first read
		if err != nil {
			return err
		}
		left, err := w.Do(ctx, "HGET", "stock:{fruit}", "apples")
		if err != nil {
			return err
		}
		fmt.Println("left:", left)
		_, err = w.Do(ctx, "HINCRBY", "stock:{fruit}", "apples", "-3")
		return err
	}
	_ = sell
}
