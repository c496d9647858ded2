package core

import (
	"encoding/binary"
	"slices"
)

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
