package sim

import (
	"slices"
	"time"

	"example.com/redlock/internal/answer"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// lease is the part of an attempt that begins when its round is won, up to its
// last release: see quorum/lease.go and quorum/release.go.
type lease struct {
	holding core.Holding
	token   uint64
	hold    *Hold // what its holder believes
	renewal *core.Renewal
	// endTimer and renewTimer count how often the timers were set: the last
	// setting counts.
	endTimer, renewTimer int
	// lost is told when the lease ends by itself.
	lost func()
	// givenBack is told when a quorum has confirmed a release, or cannot.
	givenBack    func()
	releaseUntil core.Instant
	// onIdle is told when nothing is under way any more.
	onIdle func()
}

// win turns the round into a lease.
func (a *attempt) win() {
	c := a.client
	a.phase = holding
	a.holding = a.round.Holding()
	a.token = a.round.Token()
	a.hold = &Hold{
		Name: a.req.name, Client: c.index, Token: a.token, ByClock: a.byClock,
		Called: a.begun, Start: c.now, Deadline: a.holding.Until(),
	}
	c.history = append(c.history, a.hold)
	c.counts.either(a.raised, "round: won after a raise", "round: won at once")
	c.counts.either(a.byClock, "round: won by a clock", "round: won by counters")
	c.tracef("c%d holds %s with token %d until %v", c.index, lockNames[a.req.name], a.token, time.Duration(a.holding.Until()))
	a.rearm()
	if !a.req.noRenew {
		a.renewAt(a.begun.Add(core.RenewEvery(a.req.ttl, c.rnd.Uint64())))
	}
}

// note keeps what the holder can see of its deadline. It must not move once it
// has passed.
func (a *attempt) note() {
	c, until := a.client, a.holding.Until()
	if a.hold.Deadline <= c.now && until > a.hold.Deadline {
		c.violation("revival: c%d's lease of %s with token %d had passed at %v and came back at %v",
			c.index, lockNames[a.req.name], a.token, a.hold.Deadline, c.now)
	}
	// Whoever looked before it moved back has believed until now.
	a.hold.Deadline = max(until, min(a.hold.Deadline, c.now))
}

// believeUntil ends what the holder believes, once.
func (a *attempt) believeUntil(t core.Instant) {
	if a.hold != nil && a.hold.End == 0 {
		a.hold.End = t
	}
}

// rearm moves the end timer to where the validity now ends.
func (a *attempt) rearm() {
	a.endTimer++
	mine := a.endTimer
	a.client.after(a.holding.Until().Sub(a.client.now), func() {
		if a.endTimer == mine {
			a.checkHeld()
		}
	})
}

// checkHeld ends the lease if it can no longer be held.
func (a *attempt) checkHeld() bool {
	if a.phase != holding {
		return false
	}
	switch a.holding.Ending(a.client.now) {
	case core.Forgotten:
		a.lose("lease: forgotten")
	case core.Passed:
		a.lose("lease: passed")
	case core.Broken:
		a.lose("lease: broken")
	default:
		a.rearm()
		return true
	}
	return false
}

func (a *attempt) lose(why string) {
	a.client.counts.add(why)
	a.client.tracef("c%d loses token %d: %s", a.client.index, a.token, why)
	a.phase = ended
	a.believeUntil(a.client.now)
	a.stop()
	a.lost()
}

// stop ends the timers of the lease.
func (a *attempt) stop() {
	a.endTimer++
	a.renewTimer++
}

func (a *attempt) renewAt(t core.Instant) {
	a.renewTimer++
	mine := a.renewTimer
	a.client.after(t.Sub(a.client.now), func() {
		if a.renewTimer == mine && !a.req.noRenew {
			a.renew()
		}
	})
}

func (a *attempt) renew() {
	if !a.checkHeld() || a.renewal != nil && a.renewal.Verdict() == core.Pending {
		return
	}
	renewal, effects := core.NewRenewal(a.client.now, len(a.lanes), a.req.ttl)
	a.renewal = renewal
	a.applyRenewal(slices.Clone(effects))
}

// renewed takes in the answer to an extension or a join.
func (a *attempt) renewed(t *task, ans node.Answer) {
	if !a.holding.News(t.lane, t.sent) {
		a.client.counts.add("renewal: answer overtaken")
		return
	}
	a.stepRenewal(answer.Renewal(t.op, ans, t.lane, t.sent))
}

func (a *attempt) notRenewed(t *task) {
	a.stepRenewal(answer.NoRenewal(t.op.Kind, t.lane))
}

var renewalNames = map[core.RenewalEventKind]string{
	core.Extended: "extended", core.Missing: "missing", core.Taken: "taken", core.Refusing: "refusing",
	core.Unanswered: "unanswered", core.Joined: "joined", core.NotJoined: "not joined",
}

// stepRenewal moves the renewal on. An answer may be to an earlier renewal:
// what it says of the node is true all the same.
func (a *attempt) stepRenewal(ev core.RenewalEvent) {
	if a.phase != holding {
		return
	}
	c := a.client
	c.counts.add("renewal: " + renewalNames[ev.Kind])
	before := a.renewal.Verdict()
	effects := slices.Clone(a.renewal.Step(c.now, &a.holding, ev))
	a.note()
	if !a.checkHeld() {
		return
	}
	if after := a.renewal.Verdict(); after != before {
		c.counts.add("renewal: " + after.String())
		a.renewAt(a.renewal.Next(c.now, &a.holding, c.rnd.Uint64()))
	}
	a.applyRenewal(effects)
}

func (a *attempt) applyRenewal(effects []core.RenewalEffect) {
	name, ttl := lockNames[a.req.name], a.req.ttl.Milliseconds()
	for _, e := range effects {
		if a.phase != holding {
			return
		}
		switch e.Kind {
		case core.Extend:
			a.send(e.Node, node.Op{Kind: node.Extend, Name: name, ID: a.id, TTL: ttl})
		case core.JoinNode:
			a.send(e.Node, node.Op{Kind: node.Join, Name: name, ID: a.id, TTL: ttl, Token: a.token})
		case core.ReportVanished:
			a.client.counts.add("renewal: vanished")
		}
	}
}

// release gives back what the lease has. then is told when that is settled.
func (a *attempt) release(then func()) {
	a.believeUntil(a.client.now)
	a.phase = releasing
	a.stop()
	a.givenBack = then
	a.releaseUntil = a.client.now.Add(undoFor)
	for i := range a.lanes {
		l := &a.lanes[i]
		if l.touched || l.task != nil {
			l.next = nil
			a.send(i, a.releaseOp())
		}
	}
	a.settleRelease()
}

// freed takes in that a node has no key of ours any more.
func (a *attempt) freed(i int) {
	a.lanes[i].freed = true
	a.settleRelease()
}

// retryRelease is how long to pause before a release is repeated that met an
// error on its way.
const retryRelease = 50 * time.Millisecond

// notFreed takes in that a release was not confirmed. One that met silence was
// sent and needs no second.
func (a *attempt) notFreed(t *task, again bool) {
	a.settleRelease()
	if !again || a.client.now.Add(retryRelease) >= a.releaseUntil {
		return
	}
	a.client.counts.add("release: repeated")
	a.client.after(retryRelease, func() {
		if !a.lanes[t.lane].freed {
			a.send(t.lane, a.releaseOp())
		}
	})
}

func (a *attempt) settleRelease() {
	if a.givenBack == nil {
		return
	}
	free, open := 0, 0
	for i := range a.lanes {
		switch l := &a.lanes[i]; {
		case l.freed || !l.touched:
			free++
		case l.task != nil:
			open++
		}
	}
	if confirmed := free >= a.client.cfg.Quorum; confirmed || open == 0 {
		a.client.counts.either(confirmed, "release: confirmed", "release: no quorum")
		then := a.givenBack
		a.givenBack = nil
		then()
	}
}

// move moves the lease out. then gets the handle once nothing is under way: an
// extension must not meet the next owner.
func (a *attempt) move(then func(handle)) {
	a.believeUntil(a.client.now)
	a.phase = moved
	a.stop()
	a.onIdle = func() { then(handle{a.req.name, a.id, a.token}) }
	a.tellIdle()
}

func (a *attempt) tellIdle() {
	if a.onIdle == nil {
		return
	}
	for i := range a.lanes {
		if a.lanes[i].task != nil || a.lanes[i].next != nil {
			return
		}
	}
	then := a.onIdle
	a.onIdle = nil
	then()
}
