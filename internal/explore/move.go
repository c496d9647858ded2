package explore

import (
	"fmt"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
)

// move is one thing that can happen next.
type move struct {
	kind moveKind
	// client is the index of the client, of the process (pushes, losesPush, crashes), or of
	// the request in its queue (arrivesAstray).
	client, node int
}

type moveKind uint8

const (
	begins        moveKind = iota // a client begins to wait
	arrives                       // a request reaches its node, and the answer its client
	arrivesSlowly                 // a request reaches its node, and the answer takes its time
	answers                       // an answer reaches its client
	pushes                        // a push reaches its process
	releases                      // a holder gives the lease back
	cancels                       // a waiter gives up
	crashes                       // a process dies
	frees                         // an operator frees the name
	goesAstray                    // a request is overtaken by all that follows
	arrivesAstray                 // it reaches its node at last
	losesAsked                    // a request gets lost
	losesTold                     // an answer gets lost
	losesPush                     // a push gets lost
	passes                        // a tick passes
	moveKinds
)

var moveNames = [moveKinds]string{
	begins:        "begins to wait",
	arrives:       "request arrives",
	arrivesSlowly: "request arrives, the answer is slow",
	answers:       "answer arrives",
	pushes:        "push arrives",
	releases:      "releases",
	cancels:       "gives up",
	crashes:       "process dies",
	frees:         "name is freed",
	goesAstray:    "request is overtaken",
	arrivesAstray: "overtaken request arrives",
	losesAsked:    "request is lost",
	losesTold:     "answer is lost",
	losesPush:     "push is lost",
	passes:        "a tick passes",
}

func (m move) String() string {
	return fmt.Sprintf("%s (client %d, node %d)", moveNames[m.kind], m.client, m.node)
}

// moves are all things that can happen next.
func (s *state) moves() []move {
	var list []move
	for i, c := range s.clients {
		switch {
		case c.phase == idle && c.turn < c.about.Turns:
			list = append(list, move{begins, i, 0})
		case c.phase == holding:
			list = append(list, move{releases, i, 0})
		case c.phase == waiting && s.cancels > 0:
			list = append(list, move{cancels, i, 0})
		}
		list = append(list, s.messages(i)...)
	}
	for p, row := range s.pushes {
		for n, q := range row {
			if len(q) > 0 {
				list = append(list, move{pushes, p, n})
				if s.losses > 0 {
					list = append(list, move{losesPush, p, n})
				}
			}
		}
		if s.alive[p] && s.crashes > 0 {
			list = append(list, move{crashes, p, 0})
		}
	}
	for n := range s.nodes {
		if s.breaks > 0 && !s.frozen(n) {
			list = append(list, move{frees, 0, n})
		}
		for i := range s.astray[n] {
			list = append(list, move{arrivesAstray, i, n})
		}
	}
	if s.now < s.world.Ticks && s.onTheirWay() <= s.delays {
		list = append(list, move{passes, 0, 0})
	}
	return list
}

// onTheirWay is how many requests would be delayed by another tick, and were not yet.
func (s *state) onTheirWay() int {
	count := 0
	for i := range s.clients {
		for n := range s.nodes {
			if !s.frozen(n) {
				count += len(s.requests[i][n]) - s.late[i][n]
			}
		}
	}
	return count
}

// messages are the moves of what is on its way from client i, and back.
func (s *state) messages(i int) []move {
	var list []move
	for n := range s.nodes {
		if len(s.requests[i][n]) > 0 && !s.frozen(n) {
			list = append(list, move{arrives, i, n})
			if s.delays > 0 {
				list = append(list, move{arrivesSlowly, i, n})
			}
			if s.losses > 0 {
				list = append(list, move{losesAsked, i, n})
			}
			if s.strays > 0 {
				list = append(list, move{goesAstray, i, n})
			}
		}
		if len(s.replies[i][n]) > 0 {
			list = append(list, move{answers, i, n})
			if s.losses > 0 {
				list = append(list, move{losesTold, i, n})
			}
		}
	}
	return list
}

func (s *state) frozen(n int) bool { return n < s.world.Frozen }

// make returns the state after the move.
func (s *state) make(m move) *state {
	t := s.clone()
	switch m.kind {
	case begins:
		t.begin(t.client(m.client))
	case arrives:
		t.arrive(m.client, m.node)
		t.settle(m.node)
	case arrivesSlowly:
		t.delays--
		t.arrive(m.client, m.node)
	case answers:
		t.takeAnswer(m.client, m.node)
	case pushes:
		t.takePush(m.client, m.node)
	case releases:
		t.leave(t.client(m.client))
	case cancels:
		t.cancels--
		t.leave(t.client(m.client))
	case crashes:
		t.crash(m.client)
	case frees:
		t.breaks--
		t.free(m.node)
	case goesAstray:
		t.strays--
		t.astray[m.node] = t.astray[m.node].push(t.nextRequest(m.client, m.node).op)
	case arrivesAstray:
		q := t.astray[m.node]
		t.astray[m.node] = append(q[:m.client:m.client], q[m.client+1:]...)
		t.call(m.node, q[m.client])
		t.settle(m.node)
	case losesAsked:
		t.losses--
		t.nextRequest(m.client, m.node)
	case losesTold:
		t.losses--
		t.replies[m.client][m.node] = t.replies[m.client][m.node][1:]
	case losesPush:
		t.losses--
		t.pushes[m.client][m.node] = t.pushes[m.client][m.node][1:]
	case passes:
		t.pass()
	}
	return t
}

// callOf is the call that carries op to the node.
func callOf(n *nodemodel.Node, op node.Op) *node.Call {
	return &node.Call{
		Guard: conf.Guard(n.Life()), MaxTTL: conf.MaxTTL, Assign: times.Assign.Milliseconds(),
		Life: times.Life.Milliseconds(), Ops: []node.Op{op},
	}
}

// call has a node carry out an operation, and sends what it publishes on its way.
func (s *state) call(n int, op node.Op) node.Answer {
	model := s.node(n)
	reply := model.Apply(callOf(model, op), s.clock())
	for _, p := range model.TakePushes() {
		for process := range s.alive {
			if processID(process) == p.Client {
				s.pushes[process][n] = s.pushes[process][n].push(p)
			}
		}
	}
	return reply.Answers[0]
}

func (s *state) arrive(c, n int) {
	e := s.nextRequest(c, n)
	e.answer = s.call(n, e.op)
	s.replies[c][n] = s.replies[c][n].push(e)
}

func (s *state) nextRequest(c, n int) envelope {
	q := s.requests[c][n]
	s.requests[c][n], s.late[c][n] = q[1:], max(s.late[c][n]-1, 0)
	return q[0]
}

// settle has what is on its way from node n arrive.
func (s *state) settle(n int) {
	for p := range s.alive {
		for len(s.pushes[p][n]) > 0 {
			s.takePush(p, n)
		}
	}
	for c := range s.clients {
		for len(s.replies[c][n]) > 0 {
			s.takeAnswer(c, n)
		}
	}
}

func (s *state) takeAnswer(c, n int) {
	e := s.replies[c][n][0]
	s.replies[c][n] = s.replies[c][n][1:]
	s.receive(s.client(c), n, e)
}

func (s *state) takePush(process, n int) {
	p := s.pushes[process][n][0]
	s.pushes[process][n] = s.pushes[process][n][1:]
	s.pushed(process, n, p)
}

// crash ends a process: nobody listens for it, and nothing more is sent. What is on its
// way to the nodes still arrives.
func (s *state) crash(process int) {
	s.crashes--
	s.alive[process] = false
	for n := range s.nodes {
		s.node(n).Listen(processID(process), false)
		s.pushes[process][n] = nil
	}
	for i := range s.clients {
		if c := s.clients[i]; c.about.Process == process {
			c = s.client(i)
			if c.phase == holding {
				s.noteOver(c)
			}
			c.phase, c.waiter, c.renewal, c.lease = dead, nil, nil, core.Holding{}
			for n := range c.lanes {
				c.lanes[n] = lane{}
				s.replies[i][n] = nil
			}
		}
	}
}

// free has an operator break the lease on one node, at once. Whoever had it may still
// act.
func (s *state) free(n int) {
	if v, held := s.nodes[n].Get(node.Keyspace{}.Lease(name), s.clock()); held {
		id := v.Text
		if len(id) > 32 {
			id = id[:32]
		}
		s.call(n, node.Op{Kind: node.Break, Name: name, ID: id, Now: true})
		for i := range s.clients {
			if _, _, its := s.clients[i].whose(id); its || id == node.SharedHolder {
				s.client(i).freed = true
			}
		}
	}
}

// pass lets a tick pass: what was asked before is silent, and what is due is done.
func (s *state) pass() {
	s.delays -= s.onTheirWay()
	for i := range s.clients {
		for n := range s.nodes {
			s.late[i][n] = len(s.requests[i][n])
		}
	}
	s.now++
	clear(s.parts)
	for i := range s.clients {
		c := s.client(i)
		if c.phase == dead {
			continue
		}
		for n := range c.lanes {
			if l := c.lanes[n]; l.busy && s.instant().Sub(l.sent) > silence {
				s.unheard(c, n)
			}
		}
		if c.phase == holding && c.lease.Lost(s.instant()) {
			s.leave(c) // what is left of it is given back
		}
		if c.phase == waiting && s.instant() >= c.waiter.Next() {
			s.apply(c, c.waiter.Tick(s.instant()))
		}
	}
}
