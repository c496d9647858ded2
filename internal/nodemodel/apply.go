package nodemodel

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"example.com/redlock/internal/node"
)

// Apply carries out a call at now, the node's clock in microseconds since
// 1970.
func (n *Node) Apply(c *node.Call, now int64) node.Reply {
	r := run{node: n, call: c, now: now, high: map[string]uint64{}, given: make([]uint64, len(c.Ops))}
	reply := node.Reply{Time: now, Answers: make([]node.Answer, len(c.Ops))}
	for _, op := range c.Ops {
		if op.Kind.Guarded() {
			guard, _ := n.get(c.Keys.Guard(), now)
			reply.Guard = guard.Text
			break
		}
	}
	r.votes = reply.Guard == c.Guard && n.votes(reply.Guard)
	r.prolongs = r.votes || n.prolongs(reply.Guard, c.Guard)
	_, r.byClock = n.Field(c.Keys.Tokens(), node.ClockField)
	// All counters go up before any lease is written: see call.lua.
	for i, op := range c.Ops {
		if op.Kind.Guarded() {
			reply.Answers[i] = r.admit(i, op)
		}
	}
	for i, op := range c.Ops {
		if reply.Answers[i].Code == 0 {
			reply.Answers[i] = r.carryOut(i, op)
		}
	}
	return reply
}

// run is one call under way.
type run struct {
	node *Node
	call *node.Call
	now  int64
	// votes: leases may be given; prolongs: they may be kept up.
	votes, prolongs bool
	byClock         bool
	high            map[string]uint64 // by shard: the highest number given out
	given           []uint64          // by operation: its number
}

// votes reports whether the node, showing guard, may give leases: whether that
// names this process, in its present term as a master.
func (n *Node) votes(guard string) bool {
	g, ok := node.ParseGuard(guard)
	return ok && g.Nonce == "" && g.Life == n.Life()
}

// prolongs reports whether the node is in a quarantine of the configuration that
// the caller wants: what it still has may be extended.
func (n *Node) prolongs(shown, wanted string) bool {
	g, ok := node.ParseGuard(shown)
	want, wok := node.ParseGuard(wanted)
	return ok && wok && g.Nonce != "" && g.Life == n.Life() && g.Conf == want.Conf && want.Nonce == ""
}

// admit answers an operation that may not be carried out, and raises the
// counter for one that may.
func (r *run) admit(i int, op node.Op) node.Answer {
	amount, number, proposes := uint64(op.TTL), op.Proposal, op.Kind == node.Acquire || op.Kind == node.Replace
	switch op.Kind {
	case node.Raise:
		amount, number = op.Stored, op.Token
	case node.Join:
		number = op.Token
	}
	switch {
	case !r.prolongs, op.Kind.Votes() && !r.votes:
		return node.Answer{Code: node.NoGuard}
	case amount == 0 || !exact(amount) || !exact(number) || !exact(op.Seen) || op.Kind.Votes() && !exact(uint64(op.NotAfter)):
		return failed("bad number")
	case op.Kind.Votes() && op.NotAfter > 0 && r.now > op.NotAfter:
		return node.Answer{Code: node.Stale}
	case !op.Kind.Counts():
		return node.Answer{}
	}
	shard := strconv.Itoa(node.Shard(op.Name))
	top, ok := r.counter(shard)
	if !ok {
		return failed("bad counter")
	}
	if top < op.Seen {
		return node.Answer{Code: node.WentBack}
	}
	if proposes {
		number = max(top+1, min(number, uint64(r.now)+node.ClockSlack*1000))
	}
	if !exact(number) {
		return failed("bad counter")
	}
	r.given[i] = number
	if number > top {
		r.high[shard] = number
		r.node.SetField(r.call.Keys.Tokens(), shard, format(number))
	}
	return node.Answer{}
}

// counter returns the highest number given out in the shard. It fails if what
// is stored is no number.
func (r *run) counter(shard string) (uint64, bool) {
	if top, ok := r.high[shard]; ok {
		return top, true
	}
	tokens := r.call.Keys.Tokens()
	if _, ok := r.node.get(tokens, r.now); ok {
		return 0, false
	}
	var top uint64
	for _, field := range []string{node.FloorField, shard} {
		if text, ok := r.node.Field(tokens, field); ok {
			number, ok := parseNumber(text)
			if !ok {
				return 0, false
			}
			top = max(top, number)
		}
	}
	r.high[shard] = top
	return top, true
}

func (r *run) carryOut(i int, op node.Op) node.Answer {
	key := r.call.Keys.Lease(op.Name)
	value, ok := r.node.get(key, r.now)
	switch {
	case r.node.isHash(key):
		return node.Answer{Code: node.WrongType}
	case !ok && (op.Kind == node.Acquire || op.Kind == node.Join):
		return r.store(key, op.ID, i, op.TTL)
	case !ok:
		return node.Answer{Code: node.Absent}
	}
	l, ours := parseLease(value.Text)
	owns := ours && l.id == op.ID && !l.broken

	switch op.Kind {
	case node.Acquire, node.Join, node.Extend:
		if owns {
			return r.prolong(key, value, l, op)
		}
	case node.Replace:
		if ours && l.id == op.NewID && !l.broken {
			return r.prolong(key, value, l, op)
		}
		if owns {
			return r.store(key, op.NewID, i, max(r.bounded(value), op.TTL))
		}
	case node.Raise:
		if owns && l.number == op.Stored {
			return node.Answer{Code: node.Done}
		}
	case node.Release:
		if ours && l.id == op.ID {
			r.node.Delete(key)
			return node.Answer{Code: node.Done}
		}
	case node.Break:
		if ours && l.id == op.ID {
			return r.breakLease(key, value, l, op.Now)
		}
	}
	return r.refuse(key, value, op)
}

// store writes the lease of operation i.
func (r *run) store(key, id string, i int, ttl int64) node.Answer {
	op := r.call.Ops[i]
	text := id + ":" + format(r.given[i])
	if op.Owner != "" {
		text += " " + op.Owner
	}
	r.node.Set(key, Value{Text: text, Expires: r.now/1000 + ttl})
	return r.granted(op, r.given[i])
}

// prolong raises the remaining time of a lease that the caller owns. It never
// shortens it.
func (r *run) prolong(key string, value Value, l lease, op node.Op) node.Answer {
	if end := r.now/1000 + op.TTL; value.Expires != 0 && end > value.Expires {
		value.Expires = end
		r.node.Set(key, value)
	}
	return r.granted(op, l.number)
}

func (r *run) breakLease(key string, value Value, l lease, now bool) node.Answer {
	switch {
	case now:
		r.node.Delete(key)
	case !l.broken:
		left := max(r.bounded(value), 1)
		r.node.Set(key, Value{Text: brokenPrefix + value.Text, Expires: r.now/1000 + left})
	}
	return node.Answer{Code: node.Done}
}

// refuse says who is in the way, and cuts what has more time left than any
// lease is given.
func (r *run) refuse(key string, value Value, op node.Op) node.Answer {
	l, ours := parseLease(value.Text)
	a := node.Answer{Code: node.Held, Token: l.number, Remaining: value.left(r.now), Holder: l.id, Owner: l.owner}
	if op.Kind.Counts() {
		a.Token = r.high[strconv.Itoa(node.Shard(op.Name))]
	}
	switch {
	case !ours:
		a.Code, a.Holder = node.Foreign, HolderOf(value.Text)
		return a
	case l.broken:
		a.Code = node.Broken
	}
	if bounded := r.bounded(value); op.Kind.Guarded() && bounded != a.Remaining {
		a.Remaining = bounded
		value.Expires = r.now/1000 + bounded
		r.node.Set(key, value)
	}
	return a
}

// bounded is the remaining time, or MaxTTL if it is more than a lease can
// have: the clock went back, or somebody took the end away.
func (r *run) bounded(value Value) int64 {
	left := value.left(r.now)
	if left < 0 || left > r.call.MaxTTL+node.ClockSlack {
		return r.call.MaxTTL
	}
	return left
}

func (r *run) granted(op node.Op, number uint64) node.Answer {
	if op.Kind == node.Acquire || op.Kind == node.Replace {
		return node.Answer{Code: node.Granted, Token: number, ByClock: r.byClock}
	}
	return node.Answer{Code: node.Done}
}

func failed(why string) node.Answer { return node.Answer{Code: node.Failed, Err: why} }

const brokenPrefix = "~broken "

// lease is a value of our own, taken apart.
type lease struct {
	id     string
	number uint64
	owner  string
	broken bool
}

// parseLease takes a value apart; false if it is not ours.
func parseLease(text string) (lease, bool) {
	text, broken := strings.CutPrefix(text, brokenPrefix)
	id, rest, _ := strings.Cut(text, ":")
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	owner := rest[len(digits):]
	number, ok := parseNumber(digits)
	if !ok || len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" || owner != "" && owner[0] != ' ' {
		return lease{}, false
	}
	return lease{id: id, number: number, owner: strings.TrimPrefix(owner, " "), broken: broken}, true
}

// HolderOf stands for the SHA-1 that a server computes of a foreign value: as
// long and as good a name, without a SHA-1 of our own.
func HolderOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:20])
}

func exact(n uint64) bool { return n < node.MaxExact }

func format(n uint64) string { return strconv.FormatUint(n, 10) }

// parseNumber reads a number of the protocol: digits only, below MaxExact.
func parseNumber(s string) (uint64, bool) {
	if s == "" || len(s) > 16 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && exact(n)
}
