package nodemodel

import (
	"strconv"
	"strings"

	"example.com/redlock/internal/node"
)

// The fields of the hash of waiters that are no waiter.
const (
	assignedField = "assigned" // to whom the name was handed, and with which ticket
	restField     = "rest"     // until when nobody is handed the name, in ms
)

// wait carries out a Wait: the waiter gets the lease, or a place.
func (r *run) wait(op node.Op) node.Answer {
	r.settle(op.Name)
	if number, ok := r.owned(op.Name, op.ID); ok {
		r.prolong(op.Name, op.ID, op.TTL)
		if op.Place.Ticket > 0 {
			r.noteAssigned(op.Name, op.ID, op.Place.Client, op.Place.Ticket, op.Mode)
		}
		ans := r.granted(op, number)
		if ans.Ticket = op.Place.Ticket; ans.Ticket == 0 {
			_, _, ans.Ticket = r.assigned(op.Name)
		}
		return ans
	}
	ticket := r.enter(op)
	if number := r.serve(op, ""); number > 0 {
		ans := r.granted(op, number)
		ans.Ticket = ticket
		return ans
	}
	ans := r.refuse(op)
	if ans.Code == node.Absent {
		ans = node.Answer{Code: node.Waiting, Token: r.high[strconv.Itoa(node.Shard(op.Name))]}
	}
	ans.Ticket = ticket
	for _, waiter := range r.node.ordered(r.keys(op.Name).line) {
		if waiter == op.Place.Waiter {
			break
		}
		ans.Ahead++
	}
	return ans
}

// enter gives the waiter its place, or renews it, and returns its ticket.
func (r *run) enter(op node.Op) uint64 {
	keys, p := r.keys(op.Name), op.Place
	e, stood := r.entry(op.Name, p.Waiter)
	if stood && e.Beat > p.Beat {
		return e.Ticket // a heartbeat from before: what it says is over
	}
	switch {
	case p.Ticket > 0: // as agreed, whatever it was here
		e.Ticket = p.Ticket
	case !stood:
		e.Ticket = r.draw(op)
	}
	e.Waiter, e.Client, e.ID, e.Mode, e.Owner = p.Waiter, p.Client, op.ID, op.Mode, op.Owner
	e.Beat, e.Deadline = p.Beat, r.now/1000+r.call.Life
	r.node.SetScore(keys.line, e.Waiter, e.Ticket)
	r.node.SetField(keys.waiters, e.Waiter, e.String())
	r.node.outlast(keys.line, r.now, r.call.Life)
	r.node.outlast(keys.waiters, r.now, r.call.Life)
	return e.Ticket
}

// draw returns a ticket for a waiter that has none yet: behind all in line, and
// behind the one whose turn it is.
func (r *run) draw(op node.Op) uint64 {
	var last uint64
	for _, ticket := range r.node.zsets[r.keys(op.Name).line] {
		last = max(last, ticket)
	}
	_, _, turn := r.assigned(op.Name)
	return min(max(r.proposal(op), last+1, turn+1), node.MaxExact-1)
}

// entry returns what the node knows of a waiter in line.
func (r *run) entry(name, waiter string) (node.Entry, bool) {
	keys := r.keys(name)
	ticket, ok := r.node.zsets[keys.line][waiter]
	if !ok {
		return node.Entry{}, false
	}
	text, _ := r.node.Field(keys.waiters, waiter)
	e, ok := node.ParseEntry(waiter, text)
	e.Ticket = ticket
	return e, ok
}

// leave takes a waiter out of the line.
func (r *run) leave(name, waiter string) {
	keys := r.keys(name)
	r.node.deleteMember(keys.line, waiter)
	r.node.deleteField(keys.waiters, waiter)
}

// dropClient takes all waiters of a client out of the line: nobody listens for them.
// Those that live come back with their next heartbeat.
func (r *run) dropClient(name, client string) {
	for _, waiter := range r.node.ordered(r.keys(name).line) {
		if e, ok := r.entry(name, waiter); !ok || e.Client == client {
			r.leave(name, waiter)
		}
	}
}

// assigned tells to whom the name was handed last, unless that was given back since.
func (r *run) assigned(name string) (id, client string, ticket uint64) {
	text, _ := r.node.Field(r.keys(name).waiters, assignedField)
	f := strings.Split(text, " ")
	if len(f) != 3 || f[0] == "" {
		return "", "", 0
	}
	ticket, _ = node.ParseNumber(f[2])
	return f[0], f[1], ticket
}

// noteAssigned notes to whom the name was handed. Of those that share it the oldest
// ticket counts.
func (r *run) noteAssigned(name, id, client string, ticket uint64, mode node.Mode) {
	keys := r.keys(name)
	if mode == node.Shared {
		if was, by, older := r.assigned(name); was == node.SharedHolder && older <= ticket {
			client, ticket = by, older
		}
		id = node.SharedHolder
	}
	r.node.SetField(keys.waiters, assignedField, id+" "+client+" "+format(ticket))
	r.node.outlast(keys.waiters, r.now, r.call.Life)
}

// settle takes in that a lease that was handed over has run out: whoever had it does
// not listen, or stands still, and the others that wait there with it.
func (r *run) settle(name string) {
	keys := r.keys(name)
	if _, held := r.node.get(keys.lease, r.now); held {
		return
	}
	if id, client, _ := r.assigned(name); id != "" {
		if id != node.SharedHolder {
			r.dropClient(name, client)
		}
		r.node.deleteField(keys.waiters, assignedField)
	}
}

// serve hands the name over, while it is free for whoever is next: the first in line
// alone, or all readers that lead it. It passes over the waiter but, who has just
// given it back. It returns the number that the caller of a Wait was given, or 0.
func (r *run) serve(op node.Op, but string) (own uint64) {
	for {
		e, ok := r.next(op.Name, but)
		if !ok {
			return own
		}
		if e.Deadline < r.now/1000 {
			r.leave(op.Name, e.Waiter)
			continue
		}
		number, ok := r.number(op)
		if !ok {
			return own
		}
		r.leave(op.Name, e.Waiter)
		self := op.Kind == node.Wait && e.Waiter == op.Place.Waiter
		ttl := r.call.Assign
		if self {
			ttl = op.TTL
		}
		r.give(op.Name, e.ID, e.Mode, number, e.Owner, ttl)
		r.noteAssigned(op.Name, e.ID, e.Client, e.Ticket, e.Mode)
		switch {
		case self:
			own = number
		case r.node.listening[e.Client]:
			r.node.pushes = append(r.node.pushes, node.Push{
				Client: e.Client, Waiter: e.Waiter, Name: op.Name, ID: e.ID,
				Token: number, ByClock: r.byClock, Beat: e.Beat, Lease: ttl,
			})
		default:
			r.takeBack(op.Name, e.ID)
			r.dropClient(op.Name, e.Client)
		}
	}
}

// next returns the first in line, if the name is free for it.
func (r *run) next(name, but string) (node.Entry, bool) {
	keys := r.keys(name)
	value, held := r.node.get(keys.lease, r.now)
	if held && value.Text != node.SharedHolder {
		return node.Entry{}, false
	}
	if text, rests := r.node.Field(keys.waiters, restField); !held && rests {
		if until, ok := node.ParseNumber(text); ok && int64(until) > r.now/1000 {
			return node.Entry{}, false
		}
		r.node.deleteField(keys.waiters, restField)
	}
	for _, waiter := range r.node.ordered(keys.line) {
		e, ok := r.entry(name, waiter)
		switch {
		case !ok:
			r.leave(name, waiter) // somebody meddled
		case held && e.Mode != node.Shared:
			return node.Entry{}, false
		case waiter != but:
			return e, true
		}
	}
	return node.Entry{}, false
}

// number draws the number of a lease that is handed over.
func (r *run) number(op node.Op) (uint64, bool) {
	shard := strconv.Itoa(node.Shard(op.Name))
	top, ok := r.counter(shard)
	number := max(top+1, r.proposal(op))
	if !ok || !exact(number) {
		return 0, false
	}
	r.high[shard] = number
	r.node.SetField(r.call.Keys.Tokens(), shard, format(number))
	return number, true
}

// proposal is the number that the caller proposes, or else the node's time.
func (r *run) proposal(op node.Op) uint64 {
	if op.Proposal == 0 || !exact(op.Proposal) {
		return uint64(r.now)
	}
	return min(op.Proposal, uint64(r.now)+node.ClockSlack*1000)
}

// release carries out a Release.
func (r *run) release(op node.Op) node.Answer {
	lined := r.lined(op)
	if lined {
		r.settle(op.Name)
	}
	owned, gives, but := r.takeBack(op.Name, op.ID), lined && r.mayGive(), ""
	switch {
	case op.Place.Waiter == "":
	case op.NewID == "":
		r.leave(op.Name, op.Place.Waiter)
	case gives:
		if owned && op.Rest > 0 {
			r.rest(op)
		}
		stands := op
		stands.ID = op.NewID
		r.enter(stands)
		but = op.Place.Waiter
	}
	if gives {
		r.serve(op, but)
	}
	if owned {
		return node.Answer{Code: node.Done}
	}
	return r.refuse(op)
}

// rest keeps the name from being handed over for a while, if it is free.
func (r *run) rest(op node.Op) {
	keys := r.keys(op.Name)
	if _, held := r.node.get(keys.lease, r.now); !held {
		r.node.SetField(keys.waiters, restField, strconv.FormatInt(r.now/1000+op.Rest, 10))
		r.node.outlast(keys.waiters, r.now, r.call.Life)
	}
}

// mayGive reports whether the node may hand names over: whether it shows the guard
// that the caller knows.
func (r *run) mayGive() bool {
	guard, _ := r.node.get(r.call.Keys.Guard(), r.now)
	return guard.Text == r.call.Guard && r.node.votes(guard.Text)
}

// Line tells who waits for a name at now, in microseconds since 1970.
func (n *Node) Line(l node.Line, now int64) node.LineReply {
	n.sweepSets(now)
	line, waiters := l.Keys.Line(l.Name), l.Keys.Waiters(l.Name)
	var reply node.LineReply
	for _, waiter := range n.ordered(line) {
		reply.Waiting++
		text, _ := n.Field(waiters, waiter)
		e, ok := node.ParseEntry(waiter, text)
		if e.Ticket = n.zsets[line][waiter]; ok && reply.Waiting <= l.Most {
			reply.First = append(reply.First, e)
		}
	}
	return reply
}
