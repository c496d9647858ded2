package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// speaker writes what is said on standard error, in order, from a goroutine of its
// own: whoever should read it may have stopped to, and a command must be stopped in
// time all the same. On a terminal it also shows a status, a line that is written over
// by the next, and by whatever else is said.
type speaker struct {
	w io.Writer

	mu     sync.Mutex
	said   []byte
	status string
	// shown is the status that stands on the terminal.
	shown string
	// silent is closed when all is written, and nil until more is said.
	silent chan struct{}
}

// maxSaid is how much waits to be written: days of it. Nobody reads what is dropped.
const maxSaid = 1 << 20

// Write says a line, or lines.
func (s *speaker) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.said)+len(lines) <= maxSaid {
		s.said = append(s.said, lines...)
		s.begin()
	}
	return len(lines), nil
}

// show replaces the status; "" takes it away.
func (s *speaker) show(status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
	s.begin()
}

// begin has the rest written, unless that is under way. s is locked.
func (s *speaker) begin() {
	if s.silent == nil {
		s.silent = make(chan struct{})
		go s.speak()
	}
}

func (s *speaker) speak() {
	for {
		text := s.next()
		if text == nil {
			return
		}
		_, _ = s.w.Write(text) // there is nowhere else to say that it failed
	}
}

// next takes what is to be written, or nil at the end.
func (s *speaker) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.said) == 0 && s.status == s.shown {
		close(s.silent)
		s.silent = nil
		return nil
	}
	var text bytes.Buffer
	if s.shown != "" {
		// Spaces are understood by every terminal.
		text.WriteString("\r" + strings.Repeat(" ", width(s.shown)) + "\r")
	}
	text.Write(s.said)
	text.WriteString(s.status)
	s.said, s.shown = nil, s.status
	return text.Bytes()
}

// settle waits until all that was said is written, but not for long.
func (s *speaker) settle(patience time.Duration) {
	select {
	case <-s.silence():
	case <-time.After(patience):
	}
}

// silence is closed once all that was said is written.
func (s *speaker) silence() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent != nil {
		return s.silent
	}
	done := make(chan struct{})
	close(done)
	return done
}

// width is how many columns of a terminal text takes, or a few more: letters that are
// not Latin may take two.
func width(text string) int {
	columns := 0
	for _, r := range text {
		columns += min(utf8.RuneLen(r), 2)
	}
	return columns
}

// clip shortens text to fewer columns than the terminal has: a line that is full could
// not be written over.
func clip(text string, columns int) string {
	for width(text) >= columns {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
