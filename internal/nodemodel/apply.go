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
	n.sweepSets(now)
	r := run{node: n, call: c, now: now, named: map[string]nameKeys{}, high: map[string]uint64{}, given: make([]uint64, len(c.Ops))}
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
	named           map[string]nameKeys
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
	if op.Kind == node.Wait {
		return node.Answer{} // draws its number when it is given the name
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
			number, ok := node.ParseNumber(text)
			if !ok {
				return 0, false
			}
			top = max(top, number)
		}
	}
	r.high[shard] = top
	return top, true
}

// nameKeys are the keys of one name.
type nameKeys struct{ lease, line, waiters, readers, numbers string }

func (r *run) keys(name string) nameKeys {
	keys, known := r.named[name]
	if !known {
		k := r.call.Keys
		keys = nameKeys{k.Lease(name), k.Line(name), k.Waiters(name), k.Readers(name), k.ReaderNumbers(name)}
		r.named[name] = keys
	}
	return keys
}

func (r *run) carryOut(i int, op node.Op) node.Answer {
	switch {
	case !exact(op.Place.Ticket) || !exact(op.Place.Beat) || !exact(uint64(op.Rest)):
		return failed("bad number")
	case r.mistyped(op):
		return node.Answer{Code: node.WrongType}
	}
	switch op.Kind {
	case node.Wait:
		return r.wait(op)
	case node.Acquire:
		return r.acquire(i, op)
	case node.Join:
		return r.join(i, op)
	case node.Release:
		return r.release(op)
	case node.Break:
		return r.breakLease(op)
	case node.Inspect:
		return r.refuse(op)
	}
	return r.change(i, op)
}

// mistyped reports whether a key that the operation reads holds something of another
// type. Those of the readers are read where the name is held shared.
func (r *run) mistyped(op node.Op) bool {
	keys := r.keys(op.Name)
	value, _ := r.node.get(keys.lease, r.now)
	return r.node.holdsSet(keys.lease) ||
		isShared(value.Text) && (!r.node.fitsZset(keys.readers, r.now) || !r.node.fitsHash(keys.numbers, r.now)) ||
		r.lined(op) && (!r.node.fitsZset(keys.line, r.now) || !r.node.fitsHash(keys.waiters, r.now))
}

// lined reports whether the operation has to look at the line. Where there is no hash
// of waiters nobody waits, and an acquire or release does without.
func (r *run) lined(op node.Op) bool {
	switch op.Kind {
	case node.Wait:
		return true
	case node.Break:
		return op.Now && r.node.exists(r.keys(op.Name).waiters, r.now)
	case node.Acquire, node.Release:
		return op.Place.Waiter != "" || r.node.exists(r.keys(op.Name).waiters, r.now)
	}
	return false
}

// acquire gives the name to an attempt that does not stand in line: if it is free,
// and nobody waits for it.
func (r *run) acquire(i int, op node.Op) node.Answer {
	if number, ok := r.owned(op.Name, op.ID); ok {
		r.prolong(op.Name, op.ID, op.TTL)
		return r.granted(op, number)
	}
	lined := r.lined(op)
	if lined {
		r.settle(op.Name)
		r.serve(op, "")
	}
	switch {
	case !r.free(op):
		return r.refuse(op)
	case lined && len(r.node.zsets[r.keys(op.Name).line]) > 0:
		return node.Answer{Code: node.Waiting, Token: r.high[strconv.Itoa(node.Shard(op.Name))]}
	}
	r.give(op.Name, op.ID, op.Mode, r.given[i], op.Owner, op.TTL)
	return r.granted(op, r.given[i])
}

// free reports whether nobody has the name, or only such as share it do.
func (r *run) free(op node.Op) bool {
	value, held := r.node.get(r.keys(op.Name).lease, r.now)
	return !held || op.Mode == node.Shared && value.Text == node.SharedHolder
}

// join stores a lease that is held elsewhere: whoever waits.
func (r *run) join(i int, op node.Op) node.Answer {
	if _, ok := r.owned(op.Name, op.ID); ok {
		r.prolong(op.Name, op.ID, op.TTL)
		return node.Answer{Code: node.Done}
	}
	if !r.free(op) {
		return r.refuse(op)
	}
	r.give(op.Name, op.ID, op.Mode, r.given[i], op.Owner, op.TTL)
	return node.Answer{Code: node.Done}
}

// change carries out what needs a lease that the caller owns: Extend, Raise and
// Replace.
func (r *run) change(i int, op node.Op) node.Answer {
	if number, ok := r.owned(op.Name, op.NewID); ok && op.Kind == node.Replace {
		r.prolong(op.Name, op.NewID, op.TTL)
		return r.granted(op, number)
	}
	number, ok := r.owned(op.Name, op.ID)
	switch {
	case !ok, op.Kind == node.Raise && number != op.Stored:
		return r.refuse(op)
	case op.Kind == node.Extend:
		r.prolong(op.Name, op.ID, op.TTL)
	case op.Kind == node.Replace:
		r.replace(i, op)
		return r.granted(op, r.given[i])
	}
	return node.Answer{Code: node.Done}
}

// replace hands the lease to the caller's new attempt.
func (r *run) replace(i int, op node.Op) {
	keys := r.keys(op.Name)
	value, _ := r.node.get(keys.lease, r.now)
	if end, reads := r.node.zsets[keys.readers][op.ID]; value.Text == node.SharedHolder && reads {
		r.removeReader(op.Name, op.ID)
		r.give(op.Name, op.NewID, node.Shared, r.given[i], op.Owner, max(int64(end)-r.now/1000, op.TTL))
		return
	}
	r.give(op.Name, op.NewID, node.Exclusive, r.given[i], op.Owner, max(r.bounded(value), op.TTL))
}

// prolong raises the remaining time of a lease that the caller owns. It never
// shortens it.
func (r *run) prolong(name, id string, ttl int64) {
	key := r.keys(name).lease
	value, _ := r.node.get(key, r.now)
	end := r.now/1000 + ttl
	switch {
	case value.Text == node.SharedHolder:
		r.prolongReader(name, id, end)
	case value.Expires != 0 && end > value.Expires:
		value.Expires = end
		r.node.Set(key, value)
	}
}

func (r *run) breakLease(op node.Op) node.Answer {
	keys := r.keys(op.Name)
	value, held := r.node.get(keys.lease, r.now)
	if !held {
		return node.Answer{Code: node.Absent}
	}
	l, ours := parseLease(value.Text)
	shared := isShared(value.Text)
	switch broken := strings.HasPrefix(value.Text, brokenPrefix); {
	case !(ours && l.id == op.ID || shared && op.ID == node.SharedHolder):
		return r.refuse(op)
	case op.Now:
		r.breakNow(op)
	case !broken:
		left := max(r.bounded(value), 1)
		r.node.Set(keys.lease, Value{Text: brokenPrefix + value.Text, Expires: r.now/1000 + left})
	}
	return node.Answer{Code: node.Done}
}

// breakNow frees the name.
func (r *run) breakNow(op node.Op) {
	keys, lined := r.keys(op.Name), r.lined(op)
	r.node.Delete(keys.lease)
	if op.ID == node.SharedHolder {
		r.node.Delete(keys.readers)
		r.node.Delete(keys.numbers)
	}
	if lined {
		r.node.deleteField(keys.waiters, assignedField)
	}
	if lined && r.mayGive() {
		r.serve(op, "")
	}
}

// refuse says who is in the way, and cuts what has more time left than any
// lease is given.
func (r *run) refuse(op node.Op) node.Answer {
	key := r.keys(op.Name).lease
	value, held := r.node.get(key, r.now)
	if !held {
		return node.Answer{Code: node.Absent}
	}
	l, ours := parseLease(value.Text)
	a := node.Answer{Code: node.Held, Token: l.number, Remaining: value.left(r.now), Holder: l.id, Owner: l.owner}
	if isShared(value.Text) {
		ours, l.broken = true, value.Text != node.SharedHolder
		a.Holder, a.Readers = node.SharedHolder, r.readers(op.Name)
	}
	if op.Kind.Counts() {
		a.Token = r.high[strconv.Itoa(node.Shard(op.Name))]
	}
	switch {
	case !ours:
		a.Code, a.Holder = node.Foreign, HolderOf(value.Text)
		return a
	case l.broken:
		a.Code = node.Broken
	case !r.node.fitsHash(r.keys(op.Name).waiters, r.now):
		return node.Answer{Code: node.WrongType}
	default:
		if id, _, ticket := r.assigned(op.Name); id == a.Holder {
			a.HolderTicket = ticket
		}
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
	if op.Kind == node.Acquire || op.Kind == node.Wait || op.Kind == node.Replace {
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
	number, ok := node.ParseNumber(digits)
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
