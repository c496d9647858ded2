// Package nodemodel is what one node does, as a pure function of its state,
// the call and the time: the twin of the Lua scripts in redisnode. A test
// keeps the two equal; whatever is changed here is changed there.
//
// It has no clock, randomness or I/O of its own. A Node is not safe for
// concurrent use.
package nodemodel

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"example.com/redlock/internal/node"
)

// Value is a string as a server stores it.
type Value struct {
	Text string
	// Expires is the millisecond since 1970 after which the value is gone; 0
	// for never.
	Expires int64
}

// Node is a server process and its data. The zero value has no run id and
// cannot be introduced; use New.
type Node struct {
	runID   string
	replID2 string // as Redis has it: of the master that the process replaced
	strings map[string]Value
	hashes  map[string]map[string]string
	zsets   map[string]map[string]uint64
	ends    map[string]int64 // as Value.Expires, of hashes and zsets that have an end
	// listening are the clients that hear what is published to them, and pushes what
	// was published since TakePushes.
	listening map[string]bool
	pushes    []node.Push
}

// New returns a blank node.
func New(runID string) *Node {
	return &Node{
		runID: runID, strings: map[string]Value{}, hashes: map[string]map[string]string{},
		zsets: map[string]map[string]uint64{}, ends: map[string]int64{}, listening: map[string]bool{},
	}
}

// RunID is the random id of the process.
func (n *Node) RunID() string { return n.runID }

// Life is the process in its present term as a master.
func (n *Node) Life() string { return node.Life(n.runID, n.replID2) }

// Clone returns a copy that shares nothing with n.
func (n *Node) Clone() *Node {
	c := &Node{
		runID: n.runID, replID2: n.replID2, strings: maps.Clone(n.strings),
		hashes: make(map[string]map[string]string, len(n.hashes)), zsets: make(map[string]map[string]uint64, len(n.zsets)),
		ends: maps.Clone(n.ends), listening: maps.Clone(n.listening), pushes: slices.Clone(n.pushes),
	}
	for key, fields := range n.hashes {
		c.hashes[key] = maps.Clone(fields)
	}
	for key, members := range n.zsets {
		c.zsets[key] = maps.Clone(members)
	}
	return c
}

// AppendState appends the state at now, in microseconds since 1970, to b.
// Two nodes that append the same bytes behave alike from their nows on, as
// far as their clocks' absolute values do not matter.
func (n *Node) AppendState(b []byte, now int64) []byte {
	b = appendText(b, n.Life())
	for _, key := range slices.Sorted(maps.Keys(n.strings)) {
		v := n.strings[key]
		if v.over(now) {
			continue
		}
		b = appendText(append(b, 's'), key)
		b = appendText(b, v.Text)
		b = strconv.AppendInt(b, v.left(now), 10)
	}
	n.sweepSets(now)
	for _, key := range slices.Sorted(maps.Keys(n.hashes)) {
		b = n.appendEnd(appendText(append(b, 'h'), key), key, now)
		for _, field := range slices.Sorted(maps.Keys(n.hashes[key])) {
			b = appendText(append(b, 'f'), field)
			b = appendText(b, n.hashes[key][field])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.zsets)) {
		b = n.appendEnd(appendText(append(b, 'z'), key), key, now)
		for _, member := range slices.Sorted(maps.Keys(n.zsets[key])) {
			b = appendText(append(b, 'm'), member)
			b = strconv.AppendUint(b, n.zsets[key][member], 10)
		}
	}
	return b
}

// appendEnd appends the time that the hash or zset has left.
func (n *Node) appendEnd(b []byte, key string, now int64) []byte {
	return strconv.AppendInt(b, Value{Expires: n.ends[key]}.left(now), 10)
}

// sweepSets deletes the hashes and zsets that have expired.
func (n *Node) sweepSets(now int64) {
	for key, end := range n.ends {
		if (Value{Expires: end}).over(now) {
			n.Delete(key)
		}
	}
}

func appendText(b []byte, s string) []byte {
	b = strconv.AppendInt(b, int64(len(s)), 10)
	return append(append(b, ':'), s...)
}

func (v Value) over(now int64) bool { return v.Expires != 0 && now/1000 > v.Expires }

// left is the remaining time in milliseconds, -1 for no end.
func (v Value) left(now int64) int64 {
	if v.Expires == 0 {
		return -1
	}
	return v.Expires - now/1000
}

// get reads a string as a server does: what has expired is deleted, so that
// it stays away even if the clock then goes back.
func (n *Node) get(key string, now int64) (Value, bool) {
	v, ok := n.strings[key]
	if ok && v.over(now) {
		delete(n.strings, key)
		return Value{}, false
	}
	return v, ok
}

// holdsSet reports whether the key holds something that is no string.
func (n *Node) holdsSet(key string) bool { return len(n.hashes[key]) > 0 || len(n.zsets[key]) > 0 }

// exists reports whether anything is stored under key.
func (n *Node) exists(key string, now int64) bool {
	_, isString := n.get(key, now)
	return isString || n.holdsSet(key)
}

// fitsHash and fitsZset report whether nothing of another type is stored under key.
func (n *Node) fitsHash(key string, now int64) bool {
	return !n.exists(key, now) || len(n.hashes[key]) > 0
}

func (n *Node) fitsZset(key string, now int64) bool {
	return !n.exists(key, now) || len(n.zsets[key]) > 0
}

// Get returns the string stored under key at now, in microseconds since 1970.
func (n *Node) Get(key string, now int64) (Value, bool) { return n.get(key, now) }

// Field returns a field of the hash stored under key.
func (n *Node) Field(key, field string) (string, bool) {
	text, ok := n.hashes[key][field]
	return text, ok
}

// Set stores a string, as any client of the server can.
func (n *Node) Set(key string, v Value) {
	n.Delete(key)
	n.strings[key] = v
}

// SetField stores a field of a hash.
func (n *Node) SetField(key, field, text string) {
	delete(n.strings, key)
	if n.hashes[key] == nil {
		n.hashes[key] = map[string]string{}
	}
	n.hashes[key][field] = text
}

// deleteField removes a field of a hash, and with the last one the hash.
func (n *Node) deleteField(key, field string) {
	delete(n.hashes[key], field)
	if len(n.hashes[key]) == 0 {
		n.Delete(key)
	}
}

// Fields returns the hash stored under key.
func (n *Node) Fields(key string) map[string]string { return maps.Clone(n.hashes[key]) }

// Scores returns the sorted set stored under key.
func (n *Node) Scores(key string) map[string]uint64 { return maps.Clone(n.zsets[key]) }

// End returns the millisecond since 1970 after which a hash or sorted set is gone; 0
// for never.
func (n *Node) End(key string) int64 { return n.ends[key] }

// SetEnd has a hash or sorted set that exists end after the given millisecond since
// 1970.
func (n *Node) SetEnd(key string, ms int64) {
	if n.holdsSet(key) {
		n.ends[key] = ms
	}
}

// Score is the score of a member of the sorted set stored under key, 0 if it is none.
func (n *Node) Score(key, member string) uint64 { return n.zsets[key][member] }

// SetScore adds a member to a sorted set, or moves it.
func (n *Node) SetScore(key, member string, score uint64) {
	delete(n.strings, key)
	if n.zsets[key] == nil {
		n.zsets[key] = map[string]uint64{}
	}
	n.zsets[key][member] = score
}

// deleteMember removes a member of a sorted set, and with the last one the set.
func (n *Node) deleteMember(key, member string) {
	delete(n.zsets[key], member)
	if len(n.zsets[key]) == 0 {
		n.Delete(key)
	}
}

// ordered are the members of a sorted set, in order.
func (n *Node) ordered(key string) []string {
	members := slices.Collect(maps.Keys(n.zsets[key]))
	slices.SortFunc(members, func(a, b string) int {
		return cmp.Or(cmp.Compare(n.zsets[key][a], n.zsets[key][b]), cmp.Compare(a, b))
	})
	return members
}

// outlast has a hash or zset that exists last for ttl milliseconds at least.
func (n *Node) outlast(key string, now, ttl int64) {
	n.SetEnd(key, max(n.ends[key], now/1000+ttl))
}

// Listen says whether the client hears what is published to it.
func (n *Node) Listen(client string, on bool) {
	if on {
		n.listening[client] = true
	} else {
		delete(n.listening, client)
	}
}

// TakePushes returns what was published since it was called last.
func (n *Node) TakePushes() []node.Push {
	pushes := n.pushes
	n.pushes = nil
	return pushes
}

// Keys are the keys that are stored at now, in microseconds since 1970, in order.
func (n *Node) Keys(now int64) []string {
	n.Sweep(now)
	keys := slices.Collect(maps.Keys(n.strings))
	keys = slices.AppendSeq(keys, maps.Keys(n.hashes))
	keys = slices.AppendSeq(keys, maps.Keys(n.zsets))
	slices.Sort(keys)
	return keys
}

// Delete removes a key of any type.
func (n *Node) Delete(key string) {
	delete(n.strings, key)
	delete(n.hashes, key)
	delete(n.zsets, key)
	delete(n.ends, key)
}

// Flush removes all data; the process goes on.
func (n *Node) Flush() {
	clear(n.strings)
	clear(n.hashes)
	clear(n.zsets)
	clear(n.ends)
}

// Restart puts a new process in the place of the old one. With keep it finds
// the data of the old one.
func (n *Node) Restart(runID string, keep bool) {
	n.runID, n.replID2 = runID, ""
	clear(n.listening) // their connections ended with it
	if !keep {
		n.Flush()
	}
}

// Restore puts the data of was, an earlier state, in place of what the process
// has.
func (n *Node) Restore(was *Node) {
	c := was.Clone()
	n.strings, n.hashes, n.zsets, n.ends = c.strings, c.hashes, c.zsets, c.ends
}

// Promote makes the process a master anew, after a time as a replica. replID2
// names what it replaced.
func (n *Node) Promote(replID2 string) { n.replID2 = replID2 }

// Sweep deletes what has expired at now, in microseconds since 1970, as a
// server does in the background. It matters where the clock goes back
// afterwards.
func (n *Node) Sweep(now int64) {
	maps.DeleteFunc(n.strings, func(_ string, v Value) bool { return v.over(now) })
	n.sweepSets(now)
}
