package memgate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"

	"example.com/redlock"
	"example.com/redlock/fence"
	"example.com/redlock/fence/filegate"
	"example.com/redlock/fence/httpgate"
	"example.com/redlock/fence/memgate"
	"example.com/redlock/fence/redisgate"
	"example.com/redlock/fence/sqlgate"
	"example.com/redlock/memnode"
	"example.com/redlock/quorum"
)

// The signatures that docs/gates.md shows.
var (
	_ func(*memgate.Gate[int], context.Context, fence.Token) (*memgate.Writer[int], error)          = (*memgate.Gate[int]).Open
	_ func(*filegate.Gate, context.Context, fence.Token) (*filegate.Writer, error)                  = (*filegate.Gate).Open
	_ func(*redisgate.Gate, context.Context, fence.Token) (*redisgate.Writer, error)                = (*redisgate.Gate).Open
	_ func(*sqlgate.Gate, context.Context, *sql.DB, string, fence.Token, func(*sql.Tx) error) error = (*sqlgate.Gate).Do
	_ func(*httpgate.Gate, http.Handler) http.Handler                                               = (*httpgate.Gate).Handler
	_ func(*http.Client, string, fence.Token) *http.Client                                          = httpgate.Open
)

// This is the example of docs/gates.md.
func Example_pausedHolder() {
	b, err := quorum.New([]quorum.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}, nil)
	if err != nil {
		log.Fatal(err)
	}
	lk, err := redlock.New(b, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer lk.Close(ctx)
	if _, err := lk.Init(ctx, nil); err != nil { // the nodes are new
		log.Fatal(err)
	}

	run := func() error {
		// docs begin
		stock := memgate.New(10) // the resource: ten apples

		// A takes the lock, opens the gate, reads, and decides to sell one.
		a, err := lk.Acquire(ctx, "apples", nil)
		if err != nil {
			return err
		}
		gateOfA, err := stock.Open(ctx, a.Token())
		if err != nil {
			return err
		}
		var seenByA int
		if err := gateOfA.Do(ctx, func(n *int) error { seenByA = *n; return nil }); err != nil {
			return err
		}

		// A's process is paused, and its lease ends: here an operator breaks it.
		if err := lk.Break(ctx, "apples", &redlock.BreakOptions{Now: true}); err != nil {
			return err
		}

		// B takes the lock, opens the gate, and sells three.
		b, err := lk.Acquire(ctx, "apples", nil)
		if err != nil {
			return err
		}
		gateOfB, err := stock.Open(ctx, b.Token())
		if err != nil {
			return err
		}
		if err := gateOfB.Do(ctx, func(n *int) error { *n -= 3; return nil }); err != nil {
			return err
		}

		// A wakes up and writes what it had computed. Without the gate B's sale
		// would be lost, and nine apples left.
		err = gateOfA.Do(ctx, func(n *int) error { *n = seenByA - 1; return nil })
		fmt.Println("A is refused:", errors.Is(err, fence.ErrStale))
		return gateOfB.Do(ctx, func(n *int) error { fmt.Println("left:", *n); return nil })
		// docs end
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// A is refused: true
	// left: 7
}

// TestDocsExampleCompiles: the worked example of docs/gates.md is the one above.
func TestDocsExampleCompiles(t *testing.T) {
	read := func(file string) string {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	_, rest, _ := strings.Cut(read("worked_test.go"), "\t\t// docs begin\n")
	compiled, _, ok := strings.Cut(rest, "\t\t// docs end\n")
	compiled = strings.TrimPrefix(strings.ReplaceAll(compiled, "\n\t\t", "\n"), "\t\t")
	if !ok || !strings.Contains(read("../../docs/gates.md"), "```go\n"+compiled+"```\n") {
		t.Errorf("docs/gates.md does not show what compiles:\n%s", compiled)
	}
}
