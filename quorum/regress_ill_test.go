package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// ills are what may happen to a node.
var ills = map[string]func(*memnode.Node){
	"frozen":    func(m *memnode.Node) { m.Freeze() },
	"mute":      func(m *memnode.Node) { m.DropReplies(true) },
	"down":      func(m *memnode.Node) { m.Down(true) },
	"slow":      func(m *memnode.Node) { m.Delay(greetLimit - time.Millisecond) },
	"wiped":     func(m *memnode.Node) { m.Wipe() },
	"restarted": func(m *memnode.Node) { m.Restart(true) },
	"ahead":     func(m *memnode.Node) { m.ShiftClock(time.Hour) },
	"behind":    func(m *memnode.Node) { m.ShiftClock(-time.Hour) },
}

// Whatever ails however many nodes, nothing that is asked of them hangs, with a context
// that never ends, nor does Close. (A bubble ends with no goroutine left.)
func TestIllNodesHoldNothingUp(t *testing.T) {
	ctx := context.Background()
	asks := map[string]func(*Backend, backend.Lease){
		"doctor":  func(b *Backend, _ backend.Lease) { b.Doctor(ctx) },
		"list":    func(b *Backend, _ backend.Lease) { _, _ = b.List(ctx, "*") },
		"inspect": func(b *Backend, _ backend.Lease) { _, _ = b.Inspect(ctx, "x") },
		"break":   func(b *Backend, _ backend.Lease) { _ = b.Break(ctx, "x", true) },
		"nodes":   func(b *Backend, _ backend.Lease) { b.Nodes(ctx) },
		"init":    func(b *Backend, _ backend.Lease) { b.Init(ctx, backend.InitOptions{Force: true, Durable: true}) },
		"change":  func(b *Backend, _ backend.Lease) { _, _ = b.Reconfigure(ctx, nil) },
		"release": func(_ *Backend, l backend.Lease) { _ = l.Release(ctx) },
		"extend":  func(_ *Backend, l backend.Lease) { _ = l.Extend(ctx) },
		"acquire": func(b *Backend, _ backend.Lease) {
			_, _ = b.Acquire(ctx, backend.Request{Name: "y", TTL: time.Second, Wait: 2 * time.Second})
		},
		"close": func(*Backend, backend.Lease) {},
	}
	for ill, strike := range ills {
		for struck := 1; struck <= 3; struck++ {
			for name, ask := range asks {
				synctest.Test(t, func(t *testing.T) {
					b, ms := three(t, nil)
					l := mustTake(t, b, "x", "")
					for _, m := range ms[:struck] {
						strike(m)
					}
					began := time.Now()
					ask(b, l)
					asked := time.Now()
					_ = b.Close(ctx)
					if took, closed := asked.Sub(began), time.Since(asked); took > 5*greetLimit || closed > 2*greetLimit {
						t.Errorf("%d nodes %s: %s took %v, Close then %v", struck, ill, name, took, closed)
					}
				})
			}
		}
	}
}
