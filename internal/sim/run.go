package sim

import (
	"fmt"
	"io"
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// world is everything in one run.
type world struct {
	cfg    Config
	script Script
	*queue
	*network
	counts    *Counts
	keys      node.Keyspace
	conf      node.Conf
	servers   []*server
	clients   []*client
	registers []*register
	history   []*Hold
	failures  []string
	trace     io.Writer
	stall     float64 // how often a process stands still after a send
	// calm is the second phase, which ends at the latest at end. missing counts
	// the clients that have not had all names.
	calm    bool
	end     core.Instant
	missing int
	// stuck tells that in the second phase a node was kept out by CounterOnly.
	stuck bool
}

// Result is what came of a run.
type Result struct {
	Config Config
	Script Script
	// Failures are violations, the most trusted check first.
	Failures []string
	Counts   *Counts
	History  []*Hold
	// Sound tells that the history is to be one of a lock: the faults were no more
	// than what leases and tokens bear.
	Sound bool
	// Events is how many things happened, Progress how long the second phase
	// took.
	Events   uint64
	Progress time.Duration
}

// maxEvents is more than any run needs: the longest take a tenth of it.
const maxEvents = 3_000_000

// Run runs a script. What happens is written to trace, which may be nil.
func Run(c Config, s Script, trace io.Writer) *Result {
	w := newWorld(c, s, trace)
	healed := w.now.Add(c.Turmoil)
	w.until(healed, func() bool { return false })
	w.heal()
	w.until(w.end, func() bool { return w.missing == 0 })
	progress := w.now.Sub(healed)
	if w.stuck && w.missing > 0 {
		progress = 0 // there was none, and is none to be
	}
	failures, sound := w.check() // counts, too
	return &Result{
		Config: c, Script: s, Failures: failures, Counts: w.counts, History: w.history, Sound: sound,
		Events: w.queue.count, Progress: progress,
	}
}

func newWorld(c Config, s Script, trace io.Writer) *world {
	w := &world{
		cfg: c, script: s, trace: trace, queue: &queue{now: 1}, counts: newCounts(),
		keys: keyspace, conf: c.conf(),
	}
	w.network = newNetwork(w.queue, c, w.counts)
	for i := range c.Nodes {
		w.servers = append(w.servers, newServer(w.queue, c, i, w.counts))
		if trace != nil {
			w.servers[i].tracef = w.tracef
		}
	}
	for range c.Names {
		w.registers = append(w.registers, &register{})
	}
	for i := range c.Clients {
		w.clients = append(w.clients, newClient(w, i))
	}
	for _, f := range s {
		if f.Verb == Restore || f.Verb == Promote {
			w.queue.after(f.At-f.For, func() { w.backUp(f) })
		}
		w.queue.after(f.At, func() { w.strike(f) })
	}
	for _, k := range w.clients {
		k.employ()
	}
	return w
}

// until lets time go by up to t, or until done.
func (w *world) until(t core.Instant, done func() bool) {
	for !done() && w.queue.count < maxEvents && w.step(t) {
	}
	if w.queue.count >= maxEvents {
		w.violation("livelock: %d events", w.queue.count)
	}
	if !done() {
		w.now = max(w.now, t)
	}
}

// ask has atNode happen at node i, and what it returns at the client; or
// refused, if the node is down.
func (w *world) ask(c *client, i int, atNode func(*server) func(), refused func()) {
	s := w.servers[i]
	back := route{c.index, i, true}
	w.send(route{c.index, i, false}, func() {
		if s.down {
			w.counts.add("network: refused")
			w.send(back, refused)
			return
		}
		s.arrive(func() { w.send(back, atNode(s)) })
	})
}

// backUp has the nodes that f will strike keep the data that it will bring back.
func (w *world) backUp(f Fault) {
	for i, s := range w.servers {
		if f.To.is(i) {
			s.backUp(f)
		}
	}
}

// strike makes a fault happen.
func (w *world) strike(f Fault) {
	w.counts.add("fault: " + string(f.Verb))
	w.tracef("%v", f)
	switch f.Verb {
	case Partition:
		w.each(f.From, f.To, func(l *link) { l.cut = true })
	case Heal:
		w.each(f.From, f.To, func(l *link) { l.cut = false })
	case Slow:
		w.each(f.From, f.To, func(l *link) { l.slow = f.For })
	case Drop:
		w.drop = f.Much
	case Dup:
		w.dup = f.Much
	case Reorder:
		w.reorder = f.Much
	case Stall:
		w.stall = f.Much
	case Pause, Crash:
		for i, c := range w.clients {
			if f.To.is(i) {
				if f.Verb == Pause {
					c.pause(f.For)
				} else {
					c.crash()
				}
			}
		}
	case Wall:
		for i, c := range w.clients {
			if f.To.is(i) {
				c.wall += f.For
			}
		}
	case Break, Free:
		w.operate(f)
	default:
		for i, s := range w.servers {
			if f.To.is(i) {
				s.strike(f)
			}
		}
	}
}

// operate is an operator at work on the nodes that can be reached.
func (w *world) operate(f Fault) {
	for name := range w.cfg.Names {
		for _, s := range w.servers {
			if f.To.is(name) && !s.down && !s.frozen {
				call := &node.Call{Keys: w.keys, MaxTTL: w.cfg.MaxTTL.Milliseconds(), Ops: []node.Op{
					{Kind: node.Inspect, Name: lockNames[name]},
				}}
				holder := s.call(call).Answers[0].Holder // whom to break, nobody if empty
				call.Ops[0] = node.Op{Kind: node.Break, Name: lockNames[name], ID: holder, Now: f.Verb == Free}
				s.call(call)
			}
		}
	}
}

// strike makes a fault happen at a node.
func (s *server) strike(f Fault) {
	if loses, blank := f.loses(); loses {
		s.loss = string(f.Verb)
		if f.Verb == Restart && blank {
			s.loss += " without data"
		}
	}
	switch f.Verb {
	case Freeze:
		s.freeze()
	case Thaw:
		s.thaw()
	case Down:
		s.down = true
	case Up:
		s.down = false
	case Restart:
		s.restart(f.Forget)
	case Restore:
		s.restore(f)
	case Promote:
		s.promote(f)
	case Flush:
		s.model.Flush()
	case Rate:
		s.adjust(0, f.Much)
	case Step:
		s.adjust(f.For, s.rate)
	}
}

// heal ends the faults of at least a quorum of nodes, of everything between
// them and the clients, and of the clients, and has every client claim every
// name. What is left of the nodes stays as it is.
func (w *world) heal() {
	rnd := stream(w.cfg.Seed, streamHeal)
	w.drop, w.dup, w.reorder, w.stall = 0, 0, 0, 0
	well := w.cfg.Quorum + rnd.IntN(w.cfg.Nodes-w.cfg.Quorum+1)
	for _, i := range rnd.Perm(w.cfg.Nodes)[:well] {
		w.each(End{'c', -1}, End{'n', i}, func(l *link) { *l = link{last: l.last} })
		w.each(End{'n', i}, End{'c', -1}, func(l *link) { *l = link{last: l.last} })
		w.servers[i].down = false
		w.servers[i].thaw()
	}
	w.calm = true
	w.end = w.now.Add(w.cfg.Patience(w.script))
	w.missing = len(w.clients)
	for _, c := range w.clients {
		c.pausedUntil = w.now
		c.resume(c.life)
		k := &worker{client: c, claiming: true}
		for name := range w.cfg.Names {
			k.claims = append(k.claims, name)
		}
		c.after(c.upTo(w.cfg.Latency), k.claim)
	}
}

// satisfied is told by a client that it has had all names.
func (w *world) satisfied() { w.missing-- }

// check returns everything that must hold and does not, and whether the history
// has to be that of a lock.
func (w *world) check() (found []string, sound bool) {
	j := judge(w.cfg, w.script, w.history)
	found = j.failures
	for _, h := range w.history {
		if h.ByClock {
			w.counts.either(ClocksAgree(w.cfg, w.script), "tokens: by clocks that agree", "tokens: by clocks that do not")
			break
		}
	}
	if j.overlaps {
		w.counts.add("beyond what leases bear: two holders")
	}
	if j.disorder {
		w.counts.add("beyond what clocks bear: tokens out of order")
	}
	fail := func(err error) {
		if err != nil {
			found = append(found, err.Error())
		}
	}
	for _, r := range w.registers {
		if !j.disorder {
			fail(checkRegister(r))
		}
		if r.loose != r.written {
			w.counts.add("beyond what leases bear: update lost without the gate")
		}
	}
	for _, c := range w.clients {
		for _, a := range c.attempts {
			fail(checkUndone(a))
		}
	}
	found = append(found, w.failures...)
	switch {
	case w.missing > 0 && w.stuck:
		w.counts.add("beyond what counters bear: no progress")
	case w.missing > 0:
		found = append(found, fmt.Sprintf("progress: %d of %d clients have not had every name %v after the heal",
			w.missing, len(w.clients), w.cfg.Patience(w.script)))
	}
	return found, j.sound
}

// violation notes what must not happen, where it happens.
func (w *world) violation(format string, args ...any) {
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
	w.tracef(format, args...)
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%v  %s\n", time.Duration(w.now), fmt.Sprintf(format, args...))
	}
}
