package faultproxy

import (
	"bytes"
	"strconv"
)

// framer finds where the values of a RESP stream end, RESP2 and RESP3 alike, in
// whatever pieces the stream comes. Other streams pass for values of one line.
type framer struct {
	inside bool   // the first byte of a value was seen, its last was not
	open   int    // values still to come, in all arrays around here
	skip   int    // bytes still to come of a string
	line   []byte // the beginning of the current line
}

// A header is a type and a number; of longer lines the rest does not matter.
const maxHeader = 32

// next consumes p up to the end of the current value, or all of p. It needs a
// p that is not empty.
func (f *framer) next(p []byte) (n int, end bool) {
	if !f.inside {
		f.inside, f.open = true, 1
	}
	for n < len(p) {
		if f.skip > 0 {
			step := min(f.skip, len(p)-n)
			f.skip -= step
			n += step
		} else {
			c := p[n]
			n++
			if len(f.line) < maxHeader {
				f.line = append(f.line, c)
			}
			if c != '\n' {
				continue
			}
			f.header()
			f.line = f.line[:0]
		}
		if f.open == 0 && f.skip == 0 {
			f.inside = false
			return n, true
		}
	}
	return n, false
}

// header accounts for what the line announces. Nested values need no stack: a
// value ends when nothing that was announced is missing.
func (f *framer) header() {
	f.open--
	size, err := strconv.Atoi(string(bytes.TrimSpace(f.line[1:])))
	if err != nil || size < 0 {
		return
	}
	switch f.line[0] {
	case '$', '=', '!':
		f.skip = size + len("\r\n")
	case '*', '~', '>':
		f.open += size
	case '%':
		f.open += 2 * size
	case '|': // attributes, then the value that has them
		f.open += 2*size + 1
	}
}

// commands watches what a client sends, and doubles commands.
type commands struct {
	framer
	held    bool   // the current command waits for its end
	current []byte // what was seen of it, complete if it is held
	spared  bool   // the client subscribes: its replies cannot be counted

	complete int64 // commands from the client
	doubled  int64 // those passed on twice
}

// maxName is enough of a command, in bytes, to read its name.
const maxName = 64

// feed takes the next piece of the stream and returns what is to be passed on.
// A command that begins while armed is true is kept until it is complete. It is
// then passed on twice if take agrees, which is told the number of the reply,
// from 0, that the client does not expect.
func (c *commands) feed(piece []byte, armed func() bool, take func(reply int64) bool) []byte {
	var out []byte
	for len(piece) > 0 {
		if !c.inside {
			c.held = !c.spared && armed()
		}
		n, end := c.next(piece)
		if c.held || len(c.current) < maxName {
			c.current = append(c.current, piece[:n]...)
		}
		if !c.held {
			out = append(out, piece[:n]...)
		}
		piece = piece[n:]
		if !end {
			continue
		}
		c.spared = c.spared || subscribes(c.current)
		if c.held && !c.spared && take(c.complete+c.doubled) {
			out = append(out, c.current...)
			c.doubled++
		}
		if c.held {
			out = append(out, c.current...)
		}
		c.complete++
		c.current = c.current[:0]
	}
	return out
}

func subscribes(command []byte) bool {
	lines := bytes.SplitN(command, []byte("\r\n"), 4) // *count, $length, name, the rest
	return len(lines) == 4 && bytes.HasSuffix(bytes.ToUpper(lines[2]), []byte("SUBSCRIBE"))
}

// replies watches what a server answers, and takes replies out.
type replies struct {
	framer
	dropped bool // the current one is
	count   int64
}

// feed takes the next piece of the stream and returns what is to be passed on:
// all but the replies for which drop is true. Replies count from 0.
func (r *replies) feed(piece []byte, drop func(reply int64) bool) []byte {
	var out []byte
	for len(piece) > 0 {
		if !r.inside {
			r.dropped = false
			if pushed := piece[0] == '>'; !pushed {
				r.dropped = drop(r.count)
				r.count++
			}
		}
		n, _ := r.next(piece)
		if !r.dropped {
			out = append(out, piece[:n]...)
		}
		piece = piece[n:]
	}
	return out
}
