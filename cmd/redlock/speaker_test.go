package main

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"
)

func TestASpeakerKeepsTheOrder(t *testing.T) {
	var heard, want bytes.Buffer
	s := &speaker{w: &heard}
	for i := range 100 {
		fmt.Fprintf(s, "line %d\n", i)
		fmt.Fprintf(&want, "line %d\n", i)
	}
	<-s.silence()
	if heard.String() != want.String() {
		t.Errorf("%q", heard.String())
	}
}

// Nobody reads: whoever speaks goes on, and what waits to be read is bounded.
func TestASpeakerDoesNotWaitForItsReader(t *testing.T) {
	r, w := io.Pipe()
	s := &speaker{w: w}
	line := bytes.Repeat([]byte("x"), 1000)
	for range 2 * maxSaid / len(line) {
		if _, err := s.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	s.settle(time.Millisecond)
	if n := len(s.said); n > maxSaid || n < maxSaid/2 {
		t.Errorf("%d bytes wait", n)
	}
	r.Close()
	<-s.silence()
}

// A status stands on a line of its own, below what is said.
func TestAStatusIsWrittenOver(t *testing.T) {
	var heard bytes.Buffer
	s := &speaker{w: &heard}
	for _, say := range []func(){
		func() { s.show("1 ahead") },
		func() { s.show("é ahead") },
		func() { fmt.Fprintln(s, "said") },
		func() { s.show("") },
		func() { fmt.Fprintln(s, "end") },
	} {
		say()
		<-s.silence()
	}
	want := "1 ahead" + "\r       \r" + "é ahead" + "\r        \r" + "said\né ahead" + "\r        \r" + "end\n"
	if heard.String() != want {
		t.Errorf("%q, want %q", heard.String(), want)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"waiting", 80, "waiting"}, {"waiting", 8, "waiting"}, {"waiting", 7, "waitin"}, {"等等等", 6, "等等"}, {"waiting", 1, ""},
	} {
		if got := clip(c.text, c.columns); got != c.want {
			t.Errorf("clip(%q, %d) is %q", c.text, c.columns, got)
		}
	}
}
