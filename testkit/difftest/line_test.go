package difftest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
	"example.com/redlock/testkit/await"
)

const (
	waiterA = "00000000000000000000000000000a0a"
	waiterB = "00000000000000000000000000000b0b"
	waiterC = "00000000000000000000000000000c0c"
	clientA = "0000000000000000000000000000aaaa"
	clientB = "0000000000000000000000000000bbbb"
)

// clientOf says which process each waiter belongs to.
var clientOf = map[string]string{waiterA: clientA, waiterB: clientB, waiterC: clientA}

// lineTimes are short, so that places and hand-overs end within a test.
const (
	assign = 300 // ms
	life   = 900 // ms
)

// ear is a client that listens.
type ear struct {
	pushes chan node.Push
	hangUp func()
}

// sentinel is published behind the pushes of a call: when it is heard, they all were.
const sentinel = "G 1 sentinel sentinel 1 1 "

func (w *world) listen(client string) {
	ctx, cancel := context.WithCancel(w.t.Context())
	e := &ear{pushes: make(chan node.Push, 100)}
	ready := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		w.node.Listen(ctx, w.keys, client, func() { close(ready) }, func(p node.Push) { e.pushes <- p })
	})
	e.hangUp = func() {
		cancel()
		listening.Wait()
	}
	select {
	case <-ready:
	case <-time.After(5 * time.Second):
		w.t.Fatal("no subscription")
	}
	w.ears[client] = e
	w.model.Listen(client, true)
}

// deafen ends the connection over which the client listens.
func (w *world) deafen(client string) {
	w.ears[client].hangUp()
	delete(w.ears, client)
	w.model.Listen(client, false)
	await.True(w.t, 5*time.Second, "the server notices", func() bool {
		m := w.do("PUBSUB", "NUMSUB", w.keys.Channel(client))
		pair, err := m.ToArray()
		if err != nil || len(pair) != 2 {
			w.t.Fatal(pair, err)
		}
		n, _ := pair[1].AsInt64()
		return n == 0
	})
}

// crowd begins, or ends, a time when all want the same name of a node in order.
func (w *world) crowd() {
	if w.crowded = !w.crowded; !w.crowded {
		return
	}
	w.do("DEL", w.keys.Tokens())
	w.model.Delete(w.keys.Tokens())
	if w.rnd.IntN(2) == 0 {
		w.setField(w.keys.Tokens(), node.ClockField, "1")
	}
	w.declare()
}

// toggleEar has a client listen, or more rarely listen no more.
func (w *world) toggleEar() {
	client := pick(w.rnd, clientA, clientB)
	if w.ears[client] == nil {
		w.listen(client)
	} else if w.rnd.IntN(2) == 0 {
		w.deafen(client)
	}
}

// deafenAll ends all connections that listen.
func (w *world) deafenAll() {
	for client, e := range w.ears {
		e.hangUp()
		delete(w.ears, client)
	}
}

// heard returns what has been published, by client.
func (w *world) heard() map[string][]node.Push {
	got := map[string][]node.Push{}
	for client, e := range w.ears {
		w.do("PUBLISH", w.keys.Channel(client), sentinel)
		for more := true; more; {
			select {
			case p := <-e.pushes:
				if more = p.ID != "sentinel"; more {
					got[client] = append(got[client], p)
				}
			case <-time.After(5 * time.Second):
				w.t.Fatalf("a push was lost; heard so far: %+v", got)
			}
		}
	}
	return got
}

// comparePushes compares what was published with what the model says.
func (w *world) comparePushes(call *node.Call) {
	got, want := w.heard(), map[string][]node.Push{}
	for _, p := range w.model.TakePushes() {
		want[p.Client] = append(want[p.Client], p)
		w.branches["push"]++
		if p.ByClock {
			w.branches["push by clock"]++
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		w.t.Fatalf("%+v\nserver published %+v\n model published %+v", call, got, want)
	}
}

// place is a random place in the line.
func (w *world) place() node.Place {
	waiter := pick(w.rnd, waiterA, waiterB, waiterC)
	p := node.Place{Waiter: waiter, Client: clientOf[waiter], Beat: 1 + uint64(w.rnd.IntN(5))}
	if w.rnd.IntN(3) == 0 {
		p.Ticket = pick(w.rnd, 1, 5, 5, 1000, uint64(time.Now().UnixMicro()), maxExact-1)
	}
	if w.rnd.IntN(40) == 0 {
		p.Ticket, p.Beat = pick(w.rnd, 0, maxExact, 1<<63), maxExact
	}
	return p
}

func (w *world) mode() node.Mode {
	return pick(w.rnd, node.Exclusive, node.Exclusive, node.Shared)
}

// stand fills in what an operation of a waiter has.
func (w *world) stand(op *node.Op) {
	op.Place = w.place()
	op.Mode, op.Owner = w.mode(), pick(w.rnd, owners...)
	if op.Kind != node.Release {
		return
	}
	if w.rnd.IntN(3) == 0 { // it leaves, and need not say whose it is
		op.Place.Client = pick(w.rnd, op.Place.Client, "")
		return
	}
	op.NewID = pick(w.rnd, ids...)
	op.Rest = pick[int64](w.rnd, 0, 0, 40, 300)
	if w.rnd.IntN(40) == 0 {
		op.Rest = pick[int64](w.rnd, -1, node.MaxExact)
	}
}

// holder is an attempt that has the name, or any.
func (w *world) holder(name string) string {
	v, _ := w.model.Get(w.keys.Lease(name), 0)
	if v.Text == node.SharedHolder {
		for id := range w.model.Scores(w.keys.Readers(name)) {
			return id
		}
	}
	if len(v.Text) > 32 && v.Text[32] == ':' {
		return v.Text[:32]
	}
	return pick(w.rnd, ids...)
}

// lineKeys are all keys of all names but those of the leases.
func (w *world) lineKeys() (zsets, hashes []string) {
	for _, name := range names {
		zsets = append(zsets, w.keys.Line(name), w.keys.Readers(name))
		hashes = append(hashes, w.keys.Waiters(name), w.keys.ReaderNumbers(name))
	}
	return zsets, hashes
}

// meddleWithLine leaves in the keys of a line what nobody of ours does.
func (w *world) meddleWithLine() {
	name, id := pick(w.rnd, names...), pick(w.rnd, waiterA, waiterB, pick(w.rnd, ids...))
	zset := pick(w.rnd, w.keys.Line(name), w.keys.Readers(name))
	hash := pick(w.rnd, w.keys.Waiters(name), w.keys.ReaderNumbers(name))
	now := w.now()/1000 + 200
	switch w.rnd.IntN(5) {
	case 0:
		w.retype(pick(w.rnd, zset, hash), func(key string) {
			w.do("SET", key, "a string")
			w.model.Set(key, nodemodel.Value{Text: "a string"})
		})
	case 1:
		w.retype(zset, func(key string) { w.setField(key, "x", "y") })
	case 2:
		w.retype(hash, func(key string) { w.setScore(key, "x", 1) })
	case 3:
		if !w.isRetyped(hash) && w.text("TYPE", hash) == "hash" {
			field := pick(w.rnd, "assigned", "rest", id)
			w.setField(hash, field, pick(w.rnd, "", "junk", "1 2 3", ids[0]+" "+clientA+" 7", ids[1]+" "+clientB+" x", "~shared "+clientA+" 12",
				fmt.Sprint(now), "1 "+fmt.Sprint(now)+" "+clientB+" "+ids[2], "1 "+fmt.Sprint(now)+" "+clientB+" "+ids[2]+" q",
				"12 x "+clientB+" "+ids[2]+" s", "17 label", "999999999999999999 1"))
		}
	case 4:
		if !w.isRetyped(zset) && w.text("TYPE", zset) == "zset" {
			w.setScore(zset, id, pick(w.rnd, 1, 5, uint64(now), uint64(now+10_000)))
		}
	}
}

// retype stores something of another type for a while.
func (w *world) retype(key string, store func(key string)) {
	w.do("DEL", key)
	w.model.Delete(key)
	store(key)
	// Calls only look for a line where this is.
	w.do("SET", w.keys.Waiting(), "", "PX", "2000")
	w.do("PEXPIRE", key, "500")
	_, ends := w.deadline(key)
	if v, ok := w.model.Get(key, 0); ok {
		v.Expires = ends
		w.model.Set(key, v)
	} else {
		w.model.SetEnd(key, ends)
	}
	w.branches["retyped"]++
}

func (w *world) isRetyped(key string) bool {
	_, ok := w.model.Get(key, 0)
	return ok
}

func (w *world) setScore(key, member string, score uint64) {
	w.do("ZADD", key, strconv.FormatUint(score, 10), member)
	w.model.SetScore(key, member, score)
}

// setEnds are the times at which the keys of lines end.
func (w *world) setEnds() []int64 {
	zsets, hashes := w.lineKeys()
	var ends []int64
	for _, key := range append(zsets, hashes...) {
		if v, ok := w.model.Get(key, 0); ok {
			ends = append(ends, v.Expires)
		} else if end := w.model.End(key); end != 0 {
			ends = append(ends, end)
		}
	}
	return ends
}

// compareLines compares the keys of all lines, and takes over the server's ends.
func (w *world) compareLines() {
	zsets, hashes := w.lineKeys()
	for _, key := range zsets {
		w.compareSet(key, w.zset(key), texts(w.model.Scores(key)))
	}
	for _, key := range hashes {
		w.compareSet(key, w.hash(key), w.model.Fields(key))
	}
	for _, name := range names {
		waiters := w.keys.Waiters(name)
		if left := w.number("PTTL", waiters); left > 0 && w.number("PTTL", w.keys.Waiting()) < left {
			w.fail(waiters, "exists longer than the mark that says so")
		}
		w.compareLine(name)
	}
}

// compareLine compares what the node and the model tell of a line.
func (w *world) compareLine(name string) {
	ask := node.Line{Keys: w.keys, Name: name, Most: 2}
	for _, key := range []string{ask.Keys.Line(name), ask.Keys.Waiters(name)} {
		if end := w.model.End(key); w.isRetyped(key) || end != 0 && end-w.now()/1000 <= 2*toleranceMS {
			return
		}
	}
	got, err := w.node.Line(w.t.Context(), ask)
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
		return // a key of another type
	} else if err != nil {
		w.t.Fatal(err)
	}
	want := w.model.Line(ask, w.now())
	if !reflect.DeepEqual(got, want) {
		w.fail(ask.Keys.Line(name), fmt.Sprintf("told of the line: server %+v, model %+v", got, want))
	}
	w.branches[fmt.Sprintf("%d told of a line", len(got.First))]++
}

func (w *world) compareSet(key string, got, want map[string]string) {
	_, retyped := w.model.Get(key, 0)
	_, ends := w.deadline(key)
	end := w.model.End(key)
	switch {
	case retyped, end != 0 && end-w.now()/1000 <= 2*toleranceMS:
		return // of another type on both sides, or expiring, or just expired
	case !maps.Equal(got, want):
		w.fail(key, fmt.Sprintf("server %q, model %q", got, want))
	case end == 0:
		return
	}
	if delta := ends - end; max(delta, -delta) > toleranceMS {
		w.fail(key, fmt.Sprintf("end: server %d ms later than the model", delta))
	}
	w.model.SetEnd(key, ends)
}

func texts(scores map[string]uint64) map[string]string {
	if scores == nil {
		return nil
	}
	all := map[string]string{}
	for member, score := range scores {
		all[member] = strconv.FormatUint(score, 10)
	}
	return all
}

func (w *world) zset(key string) map[string]string {
	if w.text("TYPE", key) != "zset" {
		return nil
	}
	m := w.do("ZRANGE", key, "0", "-1", "WITHSCORES")
	pairs, err := m.AsStrSlice()
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

func (w *world) hash(key string) map[string]string {
	if w.text("TYPE", key) != "hash" {
		return nil
	}
	m := w.do("HGETALL", key)
	fields, err := m.AsStrMap()
	if err != nil {
		w.t.Fatal(err)
	}
	return fields
}

// noteBranches counts what shows in the answers to the operations of lines.
func (w *world) noteBranches(op node.Op, a node.Answer) {
	for branch, occurred := range map[string]bool{
		"stands behind another":          a.Ahead > 0,
		"several readers":                a.Readers > 1,
		"the holder waited":              a.HolderTicket > 0 && a.Readers == 0,
		"a reader waited":                a.HolderTicket > 0 && a.Readers > 0,
		"shared lease broken":            op.Kind == node.Break && op.ID == node.SharedHolder && a.Code == node.Done,
		"given back":                     op.Kind == node.Release && op.NewID != "" && a.Code == node.Done,
		"given back, to rest":            op.Kind == node.Release && op.NewID != "" && op.Rest > 0 && a.Code == node.Done,
		"left":                           op.Kind == node.Release && op.Place.Waiter != "" && op.NewID == "",
		"granted at once, with a ticket": op.Kind == node.Wait && a.Code == node.Granted && a.Ticket > 0,
	} {
		if occurred {
			w.branches[branch]++
		} else {
			w.branches[branch] += 0
		}
	}
}
