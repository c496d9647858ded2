package node

import (
	"strconv"
	"strings"
)

// Line asks who waits for a name, and needs no guard.
type Line struct {
	Keys Keyspace
	Name string
	// Most is how many of the first to tell of.
	Most int
}

// LineReply is what a node knows of a line.
type LineReply struct {
	// Waiting is how many stand in it.
	Waiting int
	// First are the first of them, in order.
	First []Entry
}

// Entry is a place in a line.
type Entry struct {
	Waiter, Client string
	ID             string // its attempt now
	Ticket         uint64
	Beat           uint64
	Deadline       int64 // in ms; without a heartbeat the place is gone then
	Mode           Mode
	Owner          string
}

// String is how a node stores e; the ticket is kept elsewhere.
func (e Entry) String() string {
	fields := []string{
		strconv.FormatUint(e.Beat, 10), strconv.FormatInt(e.Deadline, 10), e.Client, e.ID, modeLetter(e.Mode),
	}
	text := strings.Join(fields, " ")
	if e.Owner != "" {
		text += " " + e.Owner
	}
	return text
}

func modeLetter(m Mode) string {
	if m == Shared {
		return "s"
	}
	return "x"
}

// ParseEntry reads what String wrote.
func ParseEntry(waiter, text string) (Entry, bool) {
	f := strings.SplitN(text, " ", 6)
	if len(f) < 5 {
		return Entry{}, false
	}
	e := Entry{Waiter: waiter, Client: f[2], ID: f[3]}
	beat, ok := ParseNumber(f[0])
	deadline, dok := ParseNumber(f[1])
	e.Beat, e.Deadline = beat, int64(deadline)
	if f[4] == "s" {
		e.Mode = Shared
	}
	if len(f) == 6 {
		e.Owner = f[5]
	}
	return e, ok && dok
}

// ParseNumber reads a number of the protocol: digits only, below MaxExact.
func ParseNumber(s string) (uint64, bool) {
	if s == "" || len(s) > 16 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n < MaxExact
}
