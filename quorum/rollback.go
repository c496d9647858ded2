package quorum

import (
	"errors"
	"log/slog"

	"example.com/redlock/internal/node"
)

// counters is what a peer has seen of its node's token counters, by shard. They
// only grow: a node whose counter is behind that has older data than it had, even
// if its process and its guard are the same. A machine that is put back to a
// snapshot, or DEBUG RELOAD, does that.
type counters map[int]uint64

// errWentBack is why such a node is not trusted.
var errWentBack = errors.New("data went back in time")

// saw notes what an answer tells of the counter that t moves.
func (c counters) saw(t *task, a node.Answer) {
	counter := a.Token
	switch {
	case !t.op.Kind.Counts():
		return
	case a.Code == node.Done: // a join or a raise
		counter = t.op.Token
	case a.Code != node.Granted && a.Code != node.Held && a.Code != node.Broken && a.Code != node.Foreign:
		return
	}
	shard := node.Shard(t.op.Name)
	c[shard] = max(c[shard], counter)
}

// checkCounters takes in what the answers of a call tell of the counters. It
// returns errWentBack if the node is behind. Then it is greeted, which tells whether
// the counters began anew; if not, the next greeting puts the node in quarantine.
func (p *peer) checkCounters(tasks []*task, reply *node.Reply) error {
	back, news := false, false
	for i, t := range tasks {
		back = back || reply.Answers[i].Code == node.WentBack
		if t.sent > p.anew { // else what it tells is of before they began anew
			news = true
			p.counters.saw(t, reply.Answers[i])
		}
	}
	if !back {
		return nil
	}
	if p.ready && news {
		p.log(slog.LevelWarn, "redlock: the data of a node went back in time", "node", p.node.Name())
		p.ready, p.behind = false, true
		p.startGreeting(p.backend.clock.Now()) // the node may be voting for others
	}
	return errWentBack
}

// countAnew forgets what was seen of the counters if they may have begun anew since:
// after a quarantine that others have watched, above a floor that may be below what
// they were. anotherLife tells that the process is another, whose node sat one out.
// After FLUSHALL the process and its guard stay the same: only the time tells.
func (p *peer) countAnew(r node.HelloReply, anotherLife bool) {
	if anotherLife || r.Since > p.since {
		clear(p.counters)
		p.behind, p.anew = false, p.backend.clock.Now()
	}
	p.since = r.Since
}
