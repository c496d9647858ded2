package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"example.com/redlock"
)

// newLogger returns what everything that is said on stderr goes through: the
// events of this command and what the library logs.
func newLogger(w io.Writer, asJSON bool, level slog.Level) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: jsonAttr}))
	}
	return slog.New(&textHandler{mu: new(sync.Mutex), w: w, level: level})
}

// jsonAttr gives the fields the names and units that README.md promises.
func jsonAttr(groups []string, a slog.Attr) slog.Attr {
	switch {
	case len(groups) == 0 && a.Key == slog.MessageKey:
		a.Key, a.Value = "event", slog.StringValue(strings.TrimPrefix(a.Value.String(), "redlock: "))
	case len(groups) == 0 && a.Key == "err": // as the library calls it
		a.Key = "error"
	case len(groups) == 0 && a.Key == slog.LevelKey:
		a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
	case a.Value.Kind() == slog.KindDuration:
		return slog.Int64(a.Key+"_ms", a.Value.Duration().Milliseconds())
	}
	return a
}

// textHandler writes lines for people: "redlock: waiting (name=x owner=y)".
type textHandler struct {
	mu    *sync.Mutex
	w     io.Writer
	level slog.Level
	attrs []string
	group string
}

func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	fields := h.attrs[:len(h.attrs):len(h.attrs)]
	r.Attrs(func(a slog.Attr) bool {
		fields = append(fields, h.field(a))
		return true
	})
	var line bytes.Buffer
	line.WriteString("redlock: " + strings.TrimPrefix(r.Message, "redlock: "))
	if len(fields) > 0 {
		fmt.Fprintf(&line, " (%s)", strings.Join(fields, " "))
	}
	line.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.w.Write(line.Bytes())
	return err
}

func (h *textHandler) field(a slog.Attr) string {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindDuration {
		v = slog.StringValue(v.Duration().Round(time.Millisecond).String())
	}
	s := v.String()
	if err, ok := v.Any().(error); ok && h.level > slog.LevelDebug {
		s = briefText(err)
	}
	if s == "" || strings.ContainsAny(s, " \t\r\n\"()=") {
		s = fmt.Sprintf("%q", s)
	}
	return h.group + a.Key + "=" + s
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = h.attrs[:len(h.attrs):len(h.attrs)]
	for _, a := range attrs {
		c.attrs = append(c.attrs, h.field(a))
	}
	return &c
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.group += name + "."
	return &c
}

// nodeReports is what the library says about nodes. For people it is kept until
// the nodes have done what was asked: the error that they did not says it all.
type nodeReports struct {
	slog.Handler
	mu      sync.Mutex
	kept    []slog.Record
	passing bool
}

func (r *nodeReports) Handle(ctx context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.passing {
		r.kept = append(r.kept, rec.Clone())
		return nil
	}
	return r.Handler.Handle(ctx, rec)
}

// pass says what was kept, and from now on everything at once.
func (r *nodeReports) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passing = true
	for _, rec := range r.kept {
		_ = r.Handler.Handle(context.Background(), rec) // as package slog does
	}
	r.kept = nil
}

// level is how much is said. By default what stands in the way and what went
// wrong, for programs every event; with -v all; with -q only what went wrong, to
// which a lock that is held does not belong.
func (a *app) level() slog.Level {
	switch {
	case a.quiet:
		return slog.LevelError
	case a.verbose:
		return slog.LevelDebug
	case a.json:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// fail says why the command failed.
func (a *app) fail(err error) {
	if c, ok := errors.AsType[coded](err); ok && c.err == nil {
		return
	}
	level := slog.LevelError
	if errors.Is(err, redlock.ErrHeld) {
		level = slog.LevelWarn
	}
	log := newLogger(a.said, a.json, a.level())
	full := mask(err, fullText(err))
	switch {
	case a.json:
		log.Log(context.Background(), level, "error", "error", full, "code", exitCode(err))
	case a.verbose:
		log.Log(context.Background(), level, full)
	default:
		log.Log(context.Background(), level, mask(err, briefText(err)))
	}
}
