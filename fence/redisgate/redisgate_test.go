package redisgate_test

import (
	"context"
	"errors"
	"testing"

	"example.com/redlock/fence"
	"example.com/redlock/fence/redisgate"
)

// conn answers every command alike. The real server is in fence/gatetest.
type conn struct {
	reply any
	err   error
	sent  []string
}

func (c *conn) Do(_ context.Context, args ...string) (any, error) {
	c.sent = args
	return c.reply, c.err
}

func open(t *testing.T, c *conn) *redisgate.Writer {
	t.Helper()
	g, err := redisgate.New(c, "42")
	if err != nil {
		t.Fatal(err)
	}
	c.reply = []any{"ok", "0", "0"}
	w, err := g.Open(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestKeysOfOtherTagsAreRefused(t *testing.T) {
	for _, tag := range []string{"", "a}b"} {
		if _, err := redisgate.New(&conn{}, tag); !errors.Is(err, redisgate.ErrBadKey) {
			t.Errorf("tag %q: %v", tag, err)
		}
	}
	c := &conn{}
	w := open(t, c)
	c.reply = []any{"ok", "10"}
	for key, good := range map[string]bool{
		"{42}": true, "stock:{42}": true, "stock:{42}:{7}": true,
		"42": false, "": false, "stock:{43}": false, "{}{42}": false, "{7}{42}": false, "{42": false, "}{42": false, "}{42}": true,
	} {
		c.sent = nil
		v, err := w.Do(t.Context(), "GET", key)
		if good && (v != "10" || err != nil) {
			t.Errorf("%q: %v, %v", key, v, err)
		}
		if !good && (!errors.Is(err, redisgate.ErrBadKey) || c.sent != nil) {
			t.Errorf("%q: %v, sent %q", key, err, c.sent)
		}
	}
}

func TestReplies(t *testing.T) {
	c := &conn{}
	w := open(t, c)
	failure := errors.New("connection lost")
	for _, test := range []struct {
		reply any
		err   error
		want  error // nil: any error that is none of the others
	}{
		{[]any{"stale", "6", "0"}, nil, fence.ErrStale},
		{[]any{"closed", "0", "0"}, nil, fence.ErrNotOpen},
		{nil, failure, failure},
		{[]any{"stale", "5", "0"}, nil, nil}, // it is not
		{[]any{"closed", "5", "0"}, nil, nil},
		{[]any{"what", "6", "0"}, nil, nil},
		{"OK", nil, nil},
		{nil, nil, nil},
	} {
		c.reply, c.err = test.reply, test.err
		v, err := w.Do(t.Context(), "GET", "{42}")
		if v != nil || err == nil || (test.want != nil && !errors.Is(err, test.want)) ||
			(test.want == nil && (errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrNotOpen))) {
			t.Errorf("%v, %v: %v, %v", test.reply, test.err, v, err)
		}
	}
}

func TestBadTokenIsNotSent(t *testing.T) {
	c := &conn{}
	g, err := redisgate.New(c, "42")
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []fence.Token{0, fence.MaxToken + 1} {
		_, err1 := g.Open(t.Context(), token)
		_, err2 := g.OpenShared(t.Context(), token)
		if !errors.Is(err1, fence.ErrBadToken) || !errors.Is(err2, fence.ErrBadToken) || c.sent != nil {
			t.Error(token, err1, err2, c.sent)
		}
	}
}
