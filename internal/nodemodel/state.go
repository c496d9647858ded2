// Package nodemodel is what one node does, as a pure function of its state,
// the call and the time: the twin of the Lua scripts in redisnode. A test
// keeps the two equal; whatever is changed here is changed there.
//
// It has no clock, randomness or I/O of its own. A Node is not safe for
// concurrent use.
package nodemodel

import (
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
}

// New returns a blank node.
func New(runID string) *Node {
	return &Node{runID: runID, strings: map[string]Value{}, hashes: map[string]map[string]string{}}
}

// RunID is the random id of the process.
func (n *Node) RunID() string { return n.runID }

// Life is the process in its present term as a master.
func (n *Node) Life() string { return node.Life(n.runID, n.replID2) }

// Clone returns a copy that shares nothing with n.
func (n *Node) Clone() *Node {
	c := &Node{runID: n.runID, replID2: n.replID2, strings: maps.Clone(n.strings), hashes: make(map[string]map[string]string, len(n.hashes))}
	for key, fields := range n.hashes {
		c.hashes[key] = maps.Clone(fields)
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
	for _, key := range slices.Sorted(maps.Keys(n.hashes)) {
		b = appendText(append(b, 'h'), key)
		for _, field := range slices.Sorted(maps.Keys(n.hashes[key])) {
			b = appendText(append(b, 'f'), field)
			b = appendText(b, n.hashes[key][field])
		}
	}
	return b
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

func (n *Node) isHash(key string) bool { return len(n.hashes[key]) > 0 }

// Get returns the string stored under key at now, in microseconds since 1970.
func (n *Node) Get(key string, now int64) (Value, bool) { return n.get(key, now) }

// Field returns a field of the hash stored under key.
func (n *Node) Field(key, field string) (string, bool) {
	text, ok := n.hashes[key][field]
	return text, ok
}

// Set stores a string, as any client of the server can.
func (n *Node) Set(key string, v Value) {
	delete(n.hashes, key)
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

// Delete removes a key of any type.
func (n *Node) Delete(key string) {
	delete(n.strings, key)
	delete(n.hashes, key)
}

// Flush removes all data; the process goes on.
func (n *Node) Flush() {
	clear(n.strings)
	clear(n.hashes)
}

// Restart puts a new process in the place of the old one. With keep it finds
// the data of the old one.
func (n *Node) Restart(runID string, keep bool) {
	n.runID, n.replID2 = runID, ""
	if !keep {
		n.Flush()
	}
}

// Restore puts the data of was, an earlier state, in place of what the process
// has.
func (n *Node) Restore(was *Node) {
	c := was.Clone()
	n.strings, n.hashes = c.strings, c.hashes
}

// Promote makes the process a master anew, after a time as a replica. replID2
// names what it replaced.
func (n *Node) Promote(replID2 string) { n.replID2 = replID2 }

// Sweep deletes what has expired at now, in microseconds since 1970, as a
// server does in the background. It matters where the clock goes back
// afterwards.
func (n *Node) Sweep(now int64) {
	maps.DeleteFunc(n.strings, func(_ string, v Value) bool { return v.over(now) })
}
