package sim

import (
	"fmt"
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// quarantine is what a peer knows of a node that does not vote: the rules of
// quorum/quarantine.go.
type quarantine struct {
	*core.Quarantine
	guard string // what the node shows: the quarantine by name
	blank bool   // it has no configuration, and so no leases
}

const (
	// watchQuarantineEvery is how often the time that has passed is claimed.
	watchQuarantineEvery = time.Second
	// reportLimit is how long to wait for what the others have given out.
	reportLimit = time.Second
)

// refuses reports whether the node would not do what k asks for, as it stands.
func (p *peer) refuses(k node.Kind) bool {
	return p.quarantine != nil && !k.InQuarantine(p.quarantine.blank)
}

// enterQuarantine takes in that the node does not vote.
func (p *peer) enterQuarantine(r node.HelloReply) {
	c := p.client
	if p.quarantine == nil || p.quarantine.guard != r.Guard {
		shown, _ := node.ParseGuard(r.Guard)
		blank := shown.Conf == node.NoConf
		need := core.QuarantineTime(c.cfg.MaxTTL, c.cfg.Drift.Rate, !blank)
		p.quarantine = &quarantine{Quarantine: core.NewQuarantine(need), guard: r.Guard, blank: blank}
	}
	p.quarantine.Saw(c.awake(), time.Duration(r.Credit)*time.Millisecond)
	p.armWatcher()
}

// armWatcher makes watch run in a while.
func (p *peer) armWatcher() {
	if p.watching {
		return
	}
	p.watching = true
	p.client.after(watchQuarantineEvery, func() {
		p.watching = false
		p.watch()
	})
}

// watch claims the time that the quarantine has lasted, and ends it if that is
// enough.
func (p *peer) watch() {
	q := p.quarantine
	if q == nil {
		return
	}
	p.armWatcher()
	p.claim(q, func(r node.WatchReply) {
		switch {
		case !r.Known:
			p.greet()
		case q.Left(p.client.awake()) == 0:
			p.lift(q)
		}
	})
}

// tell takes part in the quarantine of the node, as w says.
func (p *peer) tell(w node.Watch, then func(node.WatchReply)) {
	w.Keys = p.client.keys
	query(p, func(s *server) node.WatchReply { return s.watch(w) }, then)
}

// claim tells the node for how long its quarantine has lasted.
func (p *peer) claim(q *quarantine, then func(node.WatchReply)) {
	c := p.client
	p.tell(node.Watch{Guard: q.guard, Credit: q.Credit(c.awake()).Milliseconds()}, func(r node.WatchReply) {
		q.Saw(c.awake(), time.Duration(r.Credit)*time.Millisecond)
		then(r)
	})
}

// lift ends a quarantine that has lasted long enough. What the others have given
// out, asked for only now, is where the node's counters begin.
func (p *peer) lift(q *quarantine) {
	c := p.client
	p.claim(q, func(r node.WatchReply) { // for the time that the node has now
		p.tokenReports(func(reports []core.TokenReport) {
			floor, sure, byClock := core.Floor(c.cfg.Nodes, c.cfg.Quorum, reports, r.Time)
			if !p.mayLift(q, sure, reports) {
				return
			}
			c.tracef("c%d lifts the quarantine of n%d: floor %d, by clock %v", c.index, p.index, floor, byClock)
			p.tell(node.Watch{
				Guard: q.guard, Lift: true, Need: q.Need().Milliseconds(),
				Conf: c.conf.String(), Floor: floor, ByClock: byClock,
			}, func(r node.WatchReply) {
				if r.Lifted || !r.Known {
					p.greet()
				}
			})
		})
	})
}

// mayLift reports whether the node may count on from its clock, if that is what
// its floor rests on.
func (p *peer) mayLift(q *quarantine, sure bool, reports []core.TokenReport) bool {
	c := p.client
	should := 0
	for _, other := range c.peers {
		if other != p && other.ready && other.quarantine == nil {
			should++
		}
	}
	lift := q.Lift(sure, c.cfg.CounterOnly, c.cfg.Quorum, reports, should)
	switch lift {
	case core.LeaveToOthers:
		c.counts.add("quarantine: end left to others")
	case core.KeepUp:
		c.counts.add("quarantine: kept up for want of counters")
		c.stuck = c.stuck || c.calm
	case core.PutOff:
		c.counts.add("quarantine: end put off")
	}
	return lift == core.LiftNow
}

// tokenReports asks all other nodes for the largest number they have given out.
// Those that are silent have no say.
func (p *peer) tokenReports(then func([]core.TokenReport)) {
	c := p.client
	reports := make([]core.TokenReport, len(c.peers))
	open, over := len(c.peers)-1, false
	finish := func() {
		if !over {
			over = true
			then(reports)
		}
	}
	for i, other := range c.peers {
		if other != p {
			other.tokenReport(func(r core.TokenReport) {
				reports[i] = r
				if open--; open == 0 {
					finish()
				}
			})
		}
	}
	if open == 0 {
		finish()
		return
	}
	c.after(reportLimit, finish)
}

// tokenReport asks the node for the largest number it has given out, as the
// guard that it shows now allows.
func (p *peer) tokenReport(then func(core.TokenReport)) {
	c := p.client
	query(p, func(s *server) node.HelloReply {
		return s.hello(node.Hello{Keys: c.keys, Conf: c.conf, Intent: node.Look})
	}, func(shown node.HelloReply) {
		query(p, func(s *server) node.TokensReply {
			return s.tokens(node.Tokens{Keys: c.keys, Guard: shown.Guard})
		}, func(r node.TokensReply) {
			then(core.TokenReport{Ours: true, Voting: r.Voting, Highest: r.Highest, ByClock: r.ByClock})
		})
	})
}

// query has work happen at the node, and then in the process, with its reply, if
// both messages arrive.
func query[T any](p *peer, work func(*server) T, then func(T)) {
	c, life, answered := p.client, p.client.life, false
	c.ask(c, p.index, func(s *server) func() {
		reply := work(s)
		return func() {
			c.do(life, func() {
				if !answered {
					answered = true
					then(reply)
				}
			})
		}
	}, func() {})
}

// newNonce returns a name for a quarantine.
func (c *client) newNonce() string {
	c.ids++
	return fmt.Sprintf("%02x%014x", c.index, c.ids)
}
