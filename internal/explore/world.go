package explore

import (
	"encoding/binary"
	"fmt"
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
)

// World says how big a world is, and what may happen in it.
type World struct {
	Nodes int
	// Clients take one turn after the other: they wait for the name, hold it and give
	// it back.
	Clients []Client
	// Ticks is for how long anything may happen; then all is calm. A tick is the unit of
	// all times, and the longest that a node is waited for.
	Ticks int
	// Renew has holders extend, and join, what they were handed.
	Renew bool
	// Fair worlds have no faults, and nobody is passed by who comes later.
	Fair bool
	// Frozen nodes never answer.
	Frozen int
	// Delays is how many messages may take longer than others. Without one, what is asked
	// arrives in the tick in which it was sent, in any order, and the answer, and what
	// the node publishes, right after.
	Delays int
	// Strays is how many requests may be overtaken by what is sent after them, as on a
	// connection that was cut: nobody hears the answer.
	Strays int
	// Losses is how many messages may get lost, Crashes how many processes may die,
	// Cancels how many waits may be given up, Breaks how often an operator frees the
	// name at once.
	Losses, Crashes, Cancels, Breaks int
}

// Client is one that waits.
type Client struct {
	Turns int
	Mode  node.Mode
	// Process is the index of the process that it belongs to.
	Process int
}

// tick is the unit of time. The clocks of nodes run a little faster than it, so that
// what ends in the same tick ends at the node first.
const (
	tick     = 100 * time.Millisecond
	nodeTick = 101 * time.Millisecond
	epoch    = int64(1_000_000_000)
	name     = "n"
)

// The times of the protocol, in ticks.
var times = core.LineTimes{
	Beat: 3 * tick, Life: 7 * tick, Assign: 5 * tick, AskAgain: tick, Patience: 2 * tick,
	Reach: time.Hour, Enough: tick,
}

const (
	ttl     = 8 * tick
	silence = tick // how long a node is waited for
)

var (
	drift = core.Drift{Rate: 0.01}
	conf  = node.Conf{Epoch: 1, Protocol: node.ProtocolVersion, N: 3, Q: 2, MaxTTL: ttl.Milliseconds(), Members: "m"}
)

// state is a world at one moment.
type state struct {
	world   *World
	now     int // ticks
	nodes   []*nodemodel.Node
	clients []*client
	// alive are the processes that run.
	alive []bool
	// requests and replies are on their way between a client and a node, pushes between
	// a node and a process, each in order.
	requests, replies [][]queue[envelope]
	// late is how many requests from the front of a queue were charged as delayed.
	late   [][]int
	pushes [][]queue[node.Push]
	// parts are the nodes and clients as append has them, nil where they changed.
	parts [][]byte
	// How many of each may still happen.
	delays, strays, losses, crashes, cancels, breaks int
	// astray are the requests that were overtaken, by node.
	astray []queue[node.Op]
	over   order
}

// queue is a list that is never changed in place, so that states can share it.
type queue[T any] []T

func (q queue[T]) push(item T) queue[T] { return append(q[:len(q):len(q)], item) }

// envelope is an operation on its way to a node, or its answer on the way back.
type envelope struct {
	op      node.Op
	answer  node.Answer
	attempt int // that it is about
	turn    int
	beat    uint64
}

// order is the largest tokens of leases that are over.
type order struct{ writer, reader uint64 }

func newState(w *World) *state {
	s := &state{
		world: w, delays: w.Delays, strays: w.Strays, losses: w.Losses, crashes: w.Crashes, cancels: w.Cancels, breaks: w.Breaks,
	}
	for range w.Nodes {
		model := nodemodel.New(fmt.Sprint("n", len(s.nodes)))
		model.Hello(node.Hello{Conf: conf, Intent: node.Declare}, epoch)
		s.nodes = append(s.nodes, model)
	}
	for i, c := range w.Clients {
		s.clients = append(s.clients, newClient(i, c, w.Nodes))
		for len(s.alive) <= c.Process {
			s.alive = append(s.alive, true)
			s.pushes = append(s.pushes, make([]queue[node.Push], w.Nodes))
			for _, n := range s.nodes {
				n.Listen(processID(len(s.alive)-1), true)
			}
		}
		s.requests = append(s.requests, make([]queue[envelope], w.Nodes))
		s.replies = append(s.replies, make([]queue[envelope], w.Nodes))
		s.late = append(s.late, make([]int, w.Nodes))
	}
	s.astray = make([]queue[node.Op], w.Nodes)
	s.parts = make([][]byte, w.Nodes+len(w.Clients))
	return s
}

func processID(process int) string { return fmt.Sprintf("%032x", 0xc0+process) }

// instant is the time as clients have it.
func (s *state) instant() core.Instant {
	return core.Instant(time.Second) + core.Instant(s.now)*core.Instant(tick)
}

// clock is the time as nodes have it.
func (s *state) clock() int64 { return epoch + int64(s.now)*nodeTick.Microseconds() }

func (s *state) quorum() int { return core.Majority(s.world.Nodes) }

// clone returns a copy. Its nodes and clients are shared until node or client is asked
// for one of them.
func (s *state) clone() *state {
	c := *s
	c.nodes = append([]*nodemodel.Node(nil), s.nodes...)
	c.clients = append([]*client(nil), s.clients...)
	c.astray = append([]queue[node.Op](nil), s.astray...)
	c.parts = append([][]byte(nil), s.parts...)
	c.alive = append([]bool(nil), s.alive...)
	c.late = make([][]int, len(s.late))
	for i, row := range s.late {
		c.late[i] = append([]int(nil), row...)
	}
	c.requests, c.replies, c.pushes = copyRows(s.requests), copyRows(s.replies), copyRows(s.pushes)
	return &c
}

func copyRows[T any](rows [][]queue[T]) [][]queue[T] {
	c := make([][]queue[T], len(rows))
	for i, row := range rows {
		c[i] = append([]queue[T](nil), row...)
	}
	return c
}

// node returns a node of this state alone.
func (s *state) node(i int) *nodemodel.Node {
	s.nodes[i], s.parts[i] = s.nodes[i].Clone(), nil
	return s.nodes[i]
}

// client returns a client of this state alone.
func (s *state) client(i int) *client {
	s.clients[i], s.parts[len(s.nodes)+i] = s.clients[i].clone(), nil
	return s.clients[i]
}

// append appends all that decides what can happen next.
func (s *state) append(b []byte) []byte {
	b = append(b, byte(s.now), byte(s.delays), byte(s.strays), byte(s.losses), byte(s.crashes), byte(s.cancels), byte(s.breaks))
	b = appendNumbers(b, s.over.writer, s.over.reader)
	for _, up := range s.alive {
		b = appendFlag(b, up)
	}
	for _, q := range s.astray {
		for _, op := range q {
			b = appendOp(b, op)
		}
		b = append(b, ';')
	}
	for i, n := range s.nodes {
		b = append(append(b, s.part(i, func() []byte { return n.AppendState(nil, s.clock()) })...), ';')
	}
	for i, c := range s.clients {
		b = append(append(b, s.part(len(s.nodes)+i, func() []byte { return c.append(nil, s.instant()) })...), ';')
		for n := range s.nodes {
			b = appendEnvelopes(appendEnvelopes(b, s.requests[i][n]), s.replies[i][n])
			b = append(b, byte(s.late[i][n]))
		}
	}
	for _, row := range s.pushes {
		for _, q := range row {
			for _, p := range q {
				b = appendNumbers(append(b, p.ID...), p.Token, p.Beat, uint64(p.Lease))
			}
			b = append(b, ';')
		}
	}
	return b
}

// part returns what was computed before, as long as it is true.
func (s *state) part(i int, compute func() []byte) []byte {
	if s.parts[i] == nil {
		s.parts[i] = compute()
	}
	return s.parts[i]
}

func appendEnvelopes(b []byte, q queue[envelope]) []byte {
	for _, e := range q {
		b = appendOp(b, e.op)
		a := e.answer
		b = append(append(b, byte(a.Code)), a.Holder...)
		b = appendNumbers(b, a.Token, uint64(a.Remaining), a.HolderTicket, a.Ticket, uint64(a.Readers))
		b = appendNumbers(b, uint64(e.attempt), uint64(e.turn), e.beat)
	}
	return append(b, ';')
}

func appendOp(b []byte, op node.Op) []byte {
	b = append(append(append(b, byte(op.Kind)), op.ID...), op.NewID...)
	return appendNumbers(b, op.Place.Ticket, op.Place.Beat, uint64(op.Rest), op.Proposal, op.Stored, op.Token)
}

func appendNumbers(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func appendFlag(b []byte, flag bool) []byte {
	if flag {
		return append(b, 1)
	}
	return append(b, 0)
}
