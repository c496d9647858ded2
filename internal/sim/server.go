package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
)

// server is a node: the model, and the machine under it.
type server struct {
	*queue
	index  int
	counts *Counts
	model  *nodemodel.Node
	starts int
	// The clock read micros at set and has run at 1 + rate since.
	set    core.Instant
	micros int64
	rate   float64

	frozen, down bool
	waiting      []func() // what arrived at a frozen node
	// backups is the data that faults bring back, by fault; loss, what the node last
	// suffered, for the counts.
	backups map[Fault]*nodemodel.Node
	loss    string
	// tracef writes down what happens; nil if nobody wants to know.
	tracef func(format string, args ...any)
}

// epoch is the time of day at which runs begin, in microseconds since 1970.
const epoch = 1_800_000_000_000_000

func newServer(q *queue, c Config, index int, counts *Counts) *server {
	s := &server{
		queue: q, index: index, counts: counts, micros: epoch + c.NodeOffset[index].Microseconds(),
		backups: map[Fault]*nodemodel.Node{},
	}
	s.model = nodemodel.New(s.nextRunID())
	s.hello(node.Hello{Keys: keyspace, Conf: c.conf(), Intent: node.Declare})
	return s
}

func (s *server) nextRunID() string {
	s.starts++
	sum := sha256.Sum256(fmt.Appendf(nil, "n%d %d", s.index, s.starts))
	return hex.EncodeToString(sum[:20])
}

// clock is the node's time of day in microseconds since 1970.
func (s *server) clock() int64 {
	passed := float64(s.now.Sub(s.set).Microseconds())
	return s.micros + int64(passed*(1+s.rate))
}

// adjust lets the clock jump by d and run at 1 + rate from now on.
func (s *server) adjust(d time.Duration, rate float64) {
	s.micros, s.set, s.rate = s.clock()+d.Microseconds(), s.now, rate
	// As a server does within a tenth of a second: if the clock then goes back,
	// what had expired stays away.
	s.model.Sweep(s.clock())
}

// arrive has the node work on a message.
func (s *server) arrive(work func()) {
	if s.frozen {
		s.waiting = append(s.waiting, work)
		return
	}
	work()
}

func (s *server) freeze() { s.frozen = true }

func (s *server) thaw() {
	s.frozen = false
	waiting := s.waiting
	s.waiting = nil
	for _, work := range waiting {
		work()
	}
}

// restart puts a new process in place of the old one. What waited for that one
// is gone.
func (s *server) restart(forget bool) {
	s.frozen, s.waiting = false, nil
	s.model.Restart(s.nextRunID(), !forget)
}

// backUp keeps the data as it is now for f to bring back.
func (s *server) backUp(f Fault) { s.backups[f] = s.model.Clone() }

// restore starts a new process on old data.
func (s *server) restore(f Fault) {
	s.model = s.backups[f].Clone()
	s.restart(false)
}

// promote makes the process a master anew, after a time as a replica of one that
// lagged behind. It keeps its run_id and its connections.
func (s *server) promote(f Fault) {
	runID := s.model.RunID()
	s.model = s.backups[f].Clone()
	s.model.Restart(runID, true)
	s.model.Promote(s.nextRunID())
}

// hello introduces a client.
func (s *server) hello(h node.Hello) node.HelloReply {
	r := s.model.Hello(h, s.clock())
	if r.Changed && h.Intent == node.Greet {
		s.counts.add("quarantine: begun after " + s.loss)
		s.notef("is in quarantine after %s, and shows %s", s.loss, r.Guard)
	}
	if h.Intent == node.Declare {
		s.counts.add("hello: " + string(r.Standing))
	}
	return r
}

// watch takes in a client's part in a quarantine.
func (s *server) watch(w node.Watch) node.WatchReply {
	r := s.model.Watch(w, s.clock())
	s.counts.either(r.Known, "watch: known", "watch: unknown")
	if w.Lift {
		s.counts.either(r.Lifted, "watch: lifted", "watch: not lifted")
	}
	if r.Lifted {
		s.counts.either(w.ByClock, "quarantine: over, floor by a clock", "quarantine: over, floor by counters")
		s.notef("votes again: floor %d, by clock %v", w.Floor, w.ByClock)
	}
	return r
}

// tokens says what the node has given out.
func (s *server) tokens(t node.Tokens) node.TokensReply {
	r := s.model.Tokens(t, s.clock())
	s.counts.either(r.Voting, "tokens: voting", "tokens: not voting")
	return r
}

// call carries out a call that arrives.
func (s *server) call(c *node.Call) node.Reply {
	reply := s.model.Apply(c, s.clock())
	for i, op := range c.Ops {
		a := reply.Answers[i]
		s.counts.answers[op.Kind][a.Code]++
		if s.tracef != nil { // the many calls need no words for nobody
			s.notef("%s %s by %s: %v, number %d, holder %s, %d ms left",
				kindNames[op.Kind], op.Name, tail(op.ID), a.Code, a.Token, tail(a.Holder), a.Remaining)
		}
	}
	return reply
}

func (s *server) notef(format string, args ...any) {
	if s.tracef != nil {
		s.tracef("n%d  %s", s.index, fmt.Sprintf(format, args...))
	}
}

// tail shortens an attempt id to its client and number.
func tail(id string) string {
	if len(id) < 32 {
		return id
	}
	return "c" + strings.TrimLeft(id[:7], "0") + id[7:8] + "." + id[27:]
}
