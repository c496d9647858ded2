package quorum_test

import (
	"fmt"
	"log/slog"
	"testing"

	"example.com/redlock/backend"
	"example.com/redlock/backend/backendtest"
	"example.com/redlock/memnode"
	"example.com/redlock/quorum"
)

// TestConformance judges the backend by the public suite, over 1 to 5 nodes.
func TestConformance(t *testing.T) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			servers := make([]*memnode.Node, n)
			for i := range servers {
				servers[i] = memnode.New(fmt.Sprintf("node%d", i+1))
			}
			backendtest.Run(t, backendtest.Harness{Open: func(t *testing.T) backend.Backend {
				nodes := make([]quorum.Node, n)
				for i, s := range servers {
					nodes[i] = s.Client()
				}
				b, err := quorum.New(nodes, &quorum.Config{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				b.Init(t.Context(), backend.InitOptions{})
				return b
			}})
		})
	}
}
