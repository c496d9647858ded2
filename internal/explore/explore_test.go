package explore

import (
	"flag"
	"os"
	"testing"

	"example.com/redlock/internal/node"
)

var all = flag.Bool("explore.all", false, "also worlds that take longer than a few seconds")

// size says when a world is explored.
type size uint8

const (
	small  size = iota // always: seconds
	medium             // make explore: a minute or two
	large              // make soak
)

func wants(turns int, process int) Client { return Client{Turns: turns, Process: process} }
func reads(process int) Client            { return Client{Turns: 1, Process: process, Mode: node.Shared} }

var (
	two   = []Client{wants(1, 0), wants(1, 1)}
	three = []Client{wants(1, 0), wants(1, 1), wants(1, 2)}
)

var worlds = []struct {
	name string
	size size
	World
}{
	{"one node", small, World{Nodes: 1, Clients: three, Ticks: 4, Fair: true}},
	{"one node, a message lost", small, World{Nodes: 1, Clients: two, Ticks: 14, Losses: 1}},
	{"one node, slow messages", medium, World{Nodes: 1, Clients: three, Ticks: 9, Delays: 1}},
	{"one node, a request overtaken", small, World{Nodes: 1, Clients: two, Ticks: 8, Strays: 1}},
	{"one node, the name is freed", small, World{Nodes: 1, Clients: three, Ticks: 3, Breaks: 1}},
	{"one node, one gives up", small, World{Nodes: 1, Clients: []Client{wants(1, 0), wants(1, 1), wants(1, 1)}, Ticks: 3, Cancels: 1}},
	{"one node, readers and writers", small, World{Nodes: 1, Clients: []Client{reads(0), wants(1, 1), reads(2), wants(1, 2)}, Ticks: 2, Fair: true}},
	{"two nodes", small, World{Nodes: 2, Clients: two, Ticks: 4, Fair: true}},
	{"two nodes, renewed", small, World{Nodes: 2, Clients: two, Ticks: 5, Renew: true}},
	{"two nodes, a request overtaken", medium, World{Nodes: 2, Clients: two, Ticks: 3, Strays: 1}},
	{"two nodes, a message lost", medium, World{Nodes: 2, Clients: two, Ticks: 4, Losses: 1}},
	{"two nodes, two turns", small, World{Nodes: 2, Clients: []Client{wants(2, 0), wants(2, 1)}, Ticks: 2}},
	{"two nodes, three waiters", small, World{Nodes: 2, Clients: three, Ticks: 1, Fair: true}},
	{"two nodes, two waiters of a process, one gives up", medium, World{Nodes: 2, Clients: []Client{wants(1, 0), wants(1, 1), wants(1, 1)}, Ticks: 0, Cancels: 1}},
	{"two nodes, a process dies", small, World{Nodes: 2, Clients: two, Ticks: 4, Crashes: 1}},
	{"two nodes, two readers and a writer", medium, World{Nodes: 2, Clients: []Client{reads(0), wants(1, 1), reads(2)}, Ticks: 2}},
	{"three nodes", medium, World{Nodes: 3, Clients: two, Ticks: 2}},
	{"three nodes, one frozen", medium, World{Nodes: 3, Clients: two, Ticks: 8, Frozen: 1}},
	{"three nodes, a reader and a writer", medium, World{Nodes: 3, Clients: []Client{reads(0), wants(1, 1)}, Ticks: 3}},
	{"three nodes, the name is freed", large, World{Nodes: 3, Clients: two, Ticks: 0, Breaks: 1}},
	{"three nodes, a request overtaken", large, World{Nodes: 3, Clients: two, Ticks: 3, Strays: 1}},
	{"three nodes, a message lost", large, World{Nodes: 3, Clients: two, Ticks: 2, Losses: 1}},
	{"three nodes, one frozen, a message lost", large, World{Nodes: 3, Clients: two, Ticks: 4, Frozen: 1, Losses: 1}},
	{"three nodes, a process dies", large, World{Nodes: 3, Clients: two, Ticks: 3, Crashes: 1}},
	{"two nodes, slow messages", large, World{Nodes: 2, Clients: two, Ticks: 4, Delays: 1}},
	{"two nodes, renewed for long", large, World{Nodes: 2, Clients: two, Ticks: 12, Renew: true}},
}

// TestWorlds visits every state of small worlds.
func TestWorlds(t *testing.T) {
	for _, w := range worlds {
		if w.size == small && !slow || w.size == medium && *all {
			t.Run(w.name, func(t *testing.T) { w.mustHold(t) })
		}
	}
}

// TestSoakWorlds visits every state of worlds that are not that small.
func TestSoakWorlds(t *testing.T) {
	if os.Getenv("REDLOCK_SOAK") == "" {
		t.Skip("takes long; make soak")
	}
	for _, w := range worlds {
		if w.size == large {
			t.Run(w.name, func(t *testing.T) { w.mustHold(t) })
		}
	}
}

func (w *World) mustHold(t *testing.T) {
	r, err := Search(w)
	t.Logf("%+v", *w)
	t.Logf("%d states, %d moves: %v; waits of up to %d ticks", r.States, r.Moves, r.Counts, r.Longest)
	if err != nil {
		t.Fatalf("world failed: %v", err)
	}
	if r.Won == 0 {
		t.Error("nobody ever held the name")
	}
}
