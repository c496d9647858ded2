package nodemodel

import (
	"testing"

	"example.com/redlock/internal/node"
)

const (
	waiterA, waiterB = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"
	clientA, clientB = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1", "b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1"
)

// line is a node on which C holds x, and what is done to it.
type line struct {
	t    *testing.T
	node *Node
	now  int64
}

func newLine(t *testing.T) *line {
	n := New("r1")
	n.Set(keys.Guard(), Value{Text: guard})
	n.Listen(clientA, true)
	l := &line{t, n, now}
	l.want(node.Granted, node.Op{Kind: node.Acquire, ID: idC, TTL: 800})
	return l
}

func (l *line) want(code node.Code, op node.Op) node.Answer {
	l.t.Helper()
	c := call(op)
	c.Assign, c.Life = 200, 500
	a := l.node.Apply(c, l.now).Answers[0]
	if a.Code != code {
		l.t.Fatalf("%+v: got %+v, want %v", op, a, code)
	}
	return a
}

func waits(waiter, client, id string, mode node.Mode, beat uint64) node.Op {
	return node.Op{Kind: node.Wait, ID: id, TTL: 800, Mode: mode, Place: node.Place{Waiter: waiter, Client: client, Beat: beat}}
}

func release(id string) node.Op { return node.Op{Kind: node.Release, ID: id} }

func shared(id string) node.Op {
	return node.Op{Kind: node.Acquire, ID: id, TTL: 800, Mode: node.Shared}
}

func (l *line) wantPushed(ids ...string) {
	l.t.Helper()
	pushes := l.node.TakePushes()
	for i, p := range pushes {
		if i >= len(ids) || p.ID != ids[i] {
			l.t.Fatalf("pushed %+v, want %v", pushes, ids)
		}
	}
	if len(pushes) != len(ids) {
		l.t.Fatalf("pushed %+v, want %v", pushes, ids)
	}
}

// Who does not stand in line takes no name that others wait for, and one that they
// wait for no longer.
func TestAcquireDoesNotPassTheLine(t *testing.T) {
	l := newLine(t)
	l.want(node.Held, waits(waiterA, clientA, idA, node.Exclusive, 1))
	l.node.Delete(leaseKey) // by somebody else, who hands nothing over
	if a := l.want(node.Held, node.Op{Kind: node.Acquire, ID: idB, TTL: 800}); a.Holder != idA || a.HolderTicket == 0 {
		t.Errorf("%+v", a)
	}
	l.wantPushed(idA)

	l = newLine(t)
	l.want(node.Held, waits(waiterA, clientA, idA, node.Exclusive, 1))
	l.now += 501_000
	l.node.Delete(leaseKey)
	l.want(node.Granted, node.Op{Kind: node.Acquire, ID: idB, TTL: 800})
	l.wantPushed()
}

func TestReadersDoNotPassAWriter(t *testing.T) {
	l := newLine(t)
	l.want(node.Done, release(idC))
	l.want(node.Granted, shared(idC))
	l.want(node.Granted, shared(idB))
	if a := l.want(node.Held, waits(waiterA, clientA, idA, node.Exclusive, 1)); a.Readers != 2 || a.Holder != node.SharedHolder {
		t.Errorf("%+v", a)
	}
	l.want(node.Waiting, shared("dddddddddddddddddddddddddddddddd"))
	l.want(node.Done, release(idC))
	l.wantPushed()
	l.want(node.Done, release(idB))
	l.wantPushed(idA)
}

// A name that rests is for nobody who waits; who stands in line alone gets it then.
func TestRest(t *testing.T) {
	l := newLine(t)
	back := release(idC)
	back.NewID, back.Rest, back.Place = idA, 100, node.Place{Waiter: waiterA, Client: clientA, Beat: 1}
	l.want(node.Done, back)
	l.want(node.Waiting, waits(waiterB, clientA, idB, node.Exclusive, 1))
	l.want(node.Waiting, node.Op{Kind: node.Acquire, ID: idC, TTL: 800})
	l.wantPushed()
	l.now += 101_000
	l.want(node.Held, waits(waiterB, clientA, idB, node.Exclusive, 2))
	l.wantPushed(idA)
}

// What a node cannot number it hands to nobody, and nobody loses a place.
func TestCountersUsedUpInLine(t *testing.T) {
	l := newLine(t)
	l.want(node.Held, waits(waiterA, clientA, idA, node.Exclusive, 1))
	l.node.SetField(keys.Tokens(), shard, format(node.MaxExact-1))
	l.want(node.Done, release(idC))
	l.wantPushed()
	l.node.SetField(keys.Tokens(), shard, "5")
	if a := l.want(node.Granted, waits(waiterA, clientA, idA, node.Exclusive, 2)); a.Ticket == 0 {
		t.Errorf("%+v", a)
	}
}

func TestNumbersOfALine(t *testing.T) {
	l := newLine(t)
	op := waits(waiterA, clientA, idA, node.Exclusive, node.MaxExact)
	l.want(node.Failed, op)
	op.Place.Beat, op.Place.Ticket = 1, node.MaxExact
	l.want(node.Failed, op)
	back := release(idC)
	back.NewID, back.Rest, back.Place = idA, -1, node.Place{Waiter: waiterA, Client: clientA, Beat: 1}
	l.want(node.Failed, back)
	l.want(node.Held, node.Op{Kind: node.Inspect})
	// No ticket is too large to come behind.
	op.Place.Ticket = node.MaxExact - 1
	l.want(node.Held, op)
	if a := l.want(node.Held, waits(waiterB, clientA, idB, node.Exclusive, 1)); a.Ticket != node.MaxExact-1 {
		t.Errorf("%+v", a)
	}
}

func TestLineOfAnotherType(t *testing.T) {
	l := newLine(t)
	l.node.Set(keys.Waiters("x"), Value{Text: "no hash"})
	for _, op := range []node.Op{release(idC), waits(waiterA, clientA, idA, node.Exclusive, 1), {Kind: node.Acquire, ID: idA, TTL: 800}} {
		l.want(node.WrongType, op)
	}
	l.want(node.Done, node.Op{Kind: node.Extend, ID: idC, TTL: 900})
	l.want(node.WrongType, node.Op{Kind: node.Extend, ID: idA, TTL: 900}) // who held, waited with which ticket?
	l.node.Delete(keys.Waiters("x"))
	l.want(node.Done, release(idC))
	l.want(node.Granted, shared(idA))
	l.node.Set(keys.Readers("x"), Value{Text: "no zset"})
	l.want(node.WrongType, release(idA))
	l.want(node.WrongType, node.Op{Kind: node.Inspect})
}
