//go:build unix && !(solaris || illumos || aix)

package filegate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"example.com/redlock/fence"
	"example.com/redlock/fence/filegate"
)

// Every holder opens the gate with its token before it reads the file.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	gate := filegate.New(filepath.Join(dir, "report"))
	open := func(token fence.Token) *filegate.Writer {
		w, err := gate.Open(ctx, token) // lease.Token()
		if err != nil {
			fmt.Println(err)
		}
		return w
	}
	first, second := open(33), open(34)
	fmt.Println("second:", second.WriteFile(ctx, []byte("of the second holder")))
	err = first.WriteFile(ctx, []byte("of one who comes late"))
	fmt.Println("first is stale:", err != nil)
	text, err := second.ReadFile(ctx)
	fmt.Println(string(text), err)
	// Output:
	// second: <nil>
	// first is stale: true
	// of the second holder <nil>
}
