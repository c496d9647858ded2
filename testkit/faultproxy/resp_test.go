package faultproxy

import (
	"slices"
	"strings"
	"testing"
)

// Each is one value.
var values = []string{
	"+OK\r\n",
	":5\r\n",
	"-ERR *3 no array\r\n",
	"+" + strings.Repeat("long", 50) + "\r\n",
	"PING inline\r\n",
	"$-1\r\n",
	"*-1\r\n",
	"*0\r\n",
	"$0\r\n\r\n",
	"$6\r\n*1\r\n$9\r\n",
	"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
	"*3\r\n*2\r\n:1\r\n:2\r\n$-1\r\n*1\r\n*0\r\n",
	"%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
	"|1\r\n+ttl\r\n:9\r\n*1\r\n:1\r\n",
	">3\r\n+message\r\n$1\r\nc\r\n$4\r\n\r\n\r\n\r\n",
	"=5\r\ntxt:a\r\n",
}

func TestFramerFindsTheEndOfEachValue(t *testing.T) {
	stream := strings.Join(values, "")
	for size := 1; size <= len(stream); size++ {
		var f framer
		var got []string
		current := ""
		for piece := range slices.Chunk([]byte(stream), size) {
			for len(piece) > 0 {
				n, end := f.next(piece)
				current += string(piece[:n])
				piece = piece[n:]
				if end {
					got = append(got, current)
					current = ""
				}
			}
		}
		if !slices.Equal(got, values) {
			t.Fatalf("in pieces of %d bytes: %q", size, got)
		}
	}
}

func TestCommandsAreDoubledWhole(t *testing.T) {
	const ping, set = "PING\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n"
	const subscribe = "*2\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n"
	stream := ping + set + set + ping + subscribe + ping
	for size := 1; size <= len(stream); size++ {
		var c commands
		begun := 0
		armed := func() bool { begun++; return begun != 1 } // all but the first
		var surplus []int64
		take := func(reply int64) bool { surplus = append(surplus, reply); return len(surplus) != 2 }
		var got []byte
		for piece := range slices.Chunk([]byte(stream), size) {
			got = append(got, c.feed(piece, armed, take)...)
		}
		if want := ping + set + set + set + ping + ping + subscribe + ping; string(got) != want {
			t.Errorf("in pieces of %d bytes: passed on %q", size, got)
		}
		if want := []int64{1, 3, 4}; !slices.Equal(surplus, want) {
			t.Errorf("in pieces of %d bytes: surplus replies %d, want %d", size, surplus, want)
		}
		if c.complete != 6 || c.doubled != 2 {
			t.Errorf("in pieces of %d bytes: %d commands, %d doubled", size, c.complete, c.doubled)
		}
	}
}

func TestRepliesAreTakenOutWhole(t *testing.T) {
	const push = ">2\r\n+c\r\n+m\r\n"
	stream := push + ":0\r\n" + push + "*2\r\n:1\r\n:1\r\n" + push + ":2\r\n"
	for size := 1; size <= len(stream); size++ {
		var r replies
		var got []byte
		for piece := range slices.Chunk([]byte(stream), size) {
			got = append(got, r.feed(piece, func(reply int64) bool { return reply == 1 })...)
		}
		if want := push + ":0\r\n" + push + push + ":2\r\n"; string(got) != want {
			t.Errorf("in pieces of %d bytes: passed on %q", size, got)
		}
	}
}
