package core

import (
	"encoding/binary"
	"slices"
)

// Rounds, leases, renewals and waiters can be copied, and their states compared: the
// explorer (internal/explore) plays on from each in every way.

// Clone returns a copy that shares nothing with r.
func (r *Round) Clone() *Round {
	c := *r
	c.nodes, c.effects = slices.Clone(r.nodes), nil
	c.holding = r.holding.Clone()
	return &c
}

// AppendState appends the state at now to b. Two rounds that append the same bytes
// behave alike from their nows on.
func (r *Round) AppendState(b []byte, now Instant) []byte {
	b = appendFlags(b, r.late)
	b = appendNumbers(b, uint64(r.verdict), r.token)
	for _, n := range r.nodes {
		b = appendFlags(b, n.witness, n.raising, n.stuck, n.undone)
		b = appendNumbers(b, uint64(n.answer), n.number)
	}
	return r.holding.AppendState(b, now)
}

// Clone returns a copy that shares nothing with h.
func (h *Holding) Clone() Holding {
	c := *h
	c.members = slices.Clone(h.members)
	return c
}

// AppendState appends the state at now to b, as Round's does.
func (h *Holding) AppendState(b []byte, now Instant) []byte {
	b = appendNumbers(appendFlags(b, h.lost), since(now, h.until))
	for _, m := range h.members {
		b = appendNumbers(appendFlags(b, m.held, m.broken), since(now, m.until))
	}
	return b
}

// Clone returns a copy that shares nothing with r.
func (r *Renewal) Clone() *Renewal {
	c := *r
	c.nodes, c.effects = slices.Clone(r.nodes), nil
	return &c
}

// AppendState appends the state to b, as Round's does.
func (r *Renewal) AppendState(b []byte) []byte {
	b = appendNumbers(b, uint64(r.verdict))
	for _, n := range r.nodes {
		b = append(b, byte(n.answer))
	}
	return b
}

// Clone returns a copy that shares nothing with w.
func (w *Waiter) Clone() *Waiter {
	c := *w
	c.round = w.round.Clone()
	c.effects = nil
	c.spots = slices.Clone(w.spots)
	for i := range c.spots {
		c.spots[i].sent = slices.Clone(c.spots[i].sent)
	}
	return &c
}

// AppendState appends the state at now to b. Two waiters that append the same bytes
// behave alike from their nows on.
func (w *Waiter) AppendState(b []byte, now Instant) []byte {
	b = appendNumbers(b, uint64(w.attempt), w.ticket, since(now, w.since), since(now, w.askAt), since(now, w.beatAt), since(now, w.below))
	b = w.round.AppendState(b, now)
	for i := range w.spots {
		s := &w.spots[i]
		b = appendFlags(b, s.asked, s.again, s.returns, s.silent, s.open, s.older, s.told)
		b = append(append(b, s.holder...), 0)
		b = appendNumbers(b, s.ticket, uint64(s.remaining), since(now, s.askAt), s.beat, s.askBeat, s.returnBeat, s.refused, s.voted)
		for _, sent := range s.sent {
			b = appendNumbers(b, sent.beat, since(now, sent.at))
		}
		b = append(b, 0xff)
	}
	return b
}

// since tells at from now, and apart from that an instant that is not set.
func since(now, at Instant) uint64 {
	if at == 0 {
		return 0
	}
	return uint64(now.Sub(at)) + 1<<62
}

func appendNumbers(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func appendFlags(b []byte, flags ...bool) []byte {
	bits := byte(0)
	for i, f := range flags {
		if f {
			bits |= 1 << i
		}
	}
	return append(b, bits)
}
