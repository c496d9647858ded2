package sim

import (
	"math/rand/v2"
	"time"

	"example.com/redlock/internal/core"
)

// network carries calls and replies between clients and nodes. What one client
// sends to one node arrives in order, as on a connection, except for what a
// fault holds back or doubles: that stands for what a former connection still
// carries.
type network struct {
	*queue
	rnd                *rand.Rand
	counts             *Counts
	latency, jitter    time.Duration
	drop, dup, reorder float64
	links              map[route]*link
}

// route is one direction between a client and a node.
type route struct {
	client, node int
	back         bool // from the node to the client
}

type link struct {
	cut  bool
	slow time.Duration
	last core.Instant // when the latest message arrives
}

func newNetwork(q *queue, c Config, counts *Counts) *network {
	n := &network{
		queue: q, rnd: stream(c.Seed, streamNetwork), counts: counts,
		latency: c.Latency, jitter: c.Jitter, links: make(map[route]*link),
	}
	for i := range c.Clients {
		for j := range c.Nodes {
			n.links[route{i, j, false}] = &link{}
			n.links[route{i, j, true}] = &link{}
		}
	}
	return n
}

// straggle is how much longer a message may take than its link's latency if
// others overtake it.
const straggle = time.Second

// send has deliver happen at the other end, never, or twice.
func (n *network) send(r route, deliver func()) {
	l := n.links[r]
	if l.cut {
		n.counts.add("network: cut off")
		return
	}
	if n.chance(n.drop) {
		n.counts.add("network: lost")
		return
	}
	if !r.back && n.chance(n.dup) {
		n.counts.add("network: doubled")
		n.after(n.delay(l)+n.upTo(straggle), deliver)
	}
	if n.chance(n.reorder) {
		n.counts.add("network: overtaken")
		n.after(n.delay(l)+n.upTo(straggle), deliver)
		return
	}
	l.last = max(l.last, n.now.Add(n.delay(l)))
	n.at(l.last, deliver)
}

func (n *network) delay(l *link) time.Duration { return n.latency + l.slow + n.upTo(n.jitter) }

func (n *network) upTo(d time.Duration) time.Duration {
	return time.Duration(n.rnd.Int64N(int64(d) + 1))
}

// chance draws only for what can happen, so that faults that were struck out
// of a script change no other draw.
func (n *network) chance(p float64) bool { return p > 0 && n.rnd.Float64() < p }

// each calls f for the links that a fault is about.
func (n *network) each(from, to End, f func(*link)) {
	back := from.Kind == 'n'
	if back {
		from, to = to, from
	}
	for r, l := range n.links {
		if r.back == back && from.is(r.client) && to.is(r.node) {
			f(l)
		}
	}
}
