package core

import "time"

// RenewalEventKind says what happened to a renewal at one node.
type RenewalEventKind uint8

// The events of a renewal.
const (
	// Extended: the node prolonged the lease.
	Extended RenewalEventKind = 1 + iota
	// Missing: the node does not have the lease, and nobody else does.
	Missing
	// Taken: the node does not have the lease, and somebody else has.
	Taken
	// Refusing: the lease was broken there and cannot be prolonged.
	Refusing
	// Unanswered: no answer in time, or an error.
	Unanswered
	// Joined: the node has stored the lease that it did not have.
	Joined
	// NotJoined: it did not.
	NotJoined
)

// RenewalEvent is what happened at one node.
type RenewalEvent struct {
	Kind RenewalEventKind
	Node int
	// Sent (Extended, Joined) is when it was asked for.
	Sent Instant
}

// Renewal is one extension of a lease over all nodes. It is won when a quorum
// has extended before the old validity ended: then the old quorum and the new
// one were held at once, and nobody was in between.
type Renewal struct {
	begun   Instant
	ttl     time.Duration
	nodes   []renewalNode
	verdict Verdict
	effects []RenewalEffect
}

type renewalNode struct {
	answer RenewalEventKind // zero while the extension is outstanding
}

// RenewalEffectKind says what a renewal wants done.
type RenewalEffectKind uint8

// The effects of a renewal.
const (
	// Extend the lease at Node.
	Extend RenewalEffectKind = 1 + iota
	// JoinNode stores the lease at Node, which does not have it.
	JoinNode
	// ReportVanished tells that Node lost a lease before its time.
	ReportVanished
)

// RenewalEffect is what a renewal wants done at one node.
type RenewalEffect struct {
	Kind RenewalEffectKind
	Node int
}

// NewRenewal begins, at now, the renewal of a lease over n nodes: every node is asked to
// extend, also those that are not known to have the lease, since a silent node
// may have granted it. The effects say so.
func NewRenewal(now Instant, n int, ttl time.Duration) (*Renewal, []RenewalEffect) {
	r := &Renewal{begun: now, ttl: ttl, nodes: make([]renewalNode, n), verdict: Pending}
	for i := range n {
		r.effects = append(r.effects, RenewalEffect{Extend, i})
	}
	return r, r.effects
}

// Begun returns when the renewal began.
func (r *Renewal) Begun() Instant { return r.begun }

// Verdict returns what the renewal has come to.
func (r *Renewal) Verdict() Verdict { return r.verdict }

// Step takes in what happened, updates the lease h, and returns what to do. The
// slice is good until the next call.
func (r *Renewal) Step(now Instant, h *Holding, ev RenewalEvent) []RenewalEffect {
	r.effects = r.effects[:0]
	n := &r.nodes[ev.Node]
	switch ev.Kind {
	case Extended:
		n.answer = Extended
		h.Ack(now, ev.Node, ev.Sent, r.ttl)
	case Missing, Taken:
		if h.Held(ev.Node) && h.Vanish(now, ev.Node) {
			r.effects = append(r.effects, RenewalEffect{ReportVanished, ev.Node})
		}
		n.answer = ev.Kind
	case Refusing:
		h.Break(ev.Node)
		n.answer = Refusing
	case Joined:
		h.Join(ev.Node, ev.Sent.Add(r.ttl))
		n.answer = Joined
		return r.effects
	case NotJoined:
		n.answer = NotJoined
		return r.effects
	case Unanswered:
		if n.answer == 0 {
			n.answer = Unanswered
		}
	}
	r.decide(now, h)
	return r.effects
}

func (r *Renewal) decide(now Instant, h *Holding) {
	extended, outstanding := 0, 0
	for i := range r.nodes {
		switch r.nodes[i].answer {
		case Extended:
			extended++
		case 0:
			outstanding++
		}
	}
	switch {
	case r.verdict == Lost:
	case extended >= h.quorum && !h.Lost(now):
		r.verdict = Won
		r.join()
	case extended+outstanding < h.quorum:
		r.verdict = Lost
	}
}

// join asks the nodes that miss the lease to store it, once a quorum of
// extensions has proved that it is still ours. A lease that lives on all nodes
// it can reach survives one that forgets.
func (r *Renewal) join() {
	for i := range r.nodes {
		if r.nodes[i].answer == Missing {
			r.nodes[i].answer = NotJoined // asked; unknown until it answers
			r.effects = append(r.effects, RenewalEffect{JoinNode, i})
		}
	}
}

// Next returns when, after a renewal of h that was decided at now, the next one
// begins. rnd is any number.
func (r *Renewal) Next(now Instant, h *Holding, rnd uint64) Instant {
	if r.verdict == Lost {
		return now.Add(renewAgain(h.Until().Sub(now), rnd))
	}
	return r.begun.Add(RenewEvery(r.ttl, rnd))
}

// RenewEvery is how long after a successful renewal the next one begins: a
// third of the TTL leaves time for two more if it fails. rnd, any number,
// takes up to a tenth off, so that leases taken together do not stay in step.
func RenewEvery(ttl time.Duration, rnd uint64) time.Duration {
	every := ttl / 3
	return every - jitter(every/10, rnd)
}

// ExtendBrief is when, after now, a lease is extended that was handed over and lasts until
// until: soon, but not at once. Many a holder has given it back before, and where many
// wait the extension would cost as much as the hand-over.
func ExtendBrief(now, until Instant) Instant {
	const soon = 100 * time.Millisecond
	if until.Sub(now) < 4*soon {
		return now
	}
	return now.Add(soon)
}

// renewAgain is how long after a failed renewal the next one begins, with left
// of the validity remaining: sooner and sooner, as often as the time allows.
func renewAgain(left time.Duration, rnd uint64) time.Duration {
	pause := min(left/8, time.Second)
	return max(pause-jitter(pause/4, rnd), time.Millisecond)
}
