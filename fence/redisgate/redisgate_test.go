package redisgate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// letThrough says of commands whether the gate {42} lets them through.
var letThrough = map[string]bool{
	"SET {42} 1":                                     true,
	"set {42} {43}":                                  true, // a value
	"SET {42} redlock-gate:{42}":                     true,
	"SET redlock-gate:{42} 1":                        false,
	"HSET redlock-gate:{42} shared 1":                false,
	"GET redlock-gate:{42}":                          false,
	"GET redlock-gate:{42}:{42}":                     true, // another key
	"MSET a:{42} 1 b:{42} 2":                         true,
	"MSET a:{42} 1 b:{43} 2":                         false,
	"mset a:{42} 1 redlock-gate:{42} 2":              false,
	"MSETNX a:{42} 1 b 2":                            false,
	"MGET a:{42} b:{42}":                             true,
	"MGET a:{42} b:{42} b":                           false,
	"DEL {42} {42} redlock-gate:{42}":                false,
	"Unlink {42} b:{43}":                             false,
	"EXISTS {42} b":                                  false,
	"TOUCH {42}":                                     true,
	"RENAME {42} b:{42}":                             true,
	"RENAME {42} b":                                  false,
	"RENAMENX {42} redlock-gate:{42}":                false,
	"RENAME {42}":                                    true, // the server refuses it
	"SMOVE {42} b member":                            false,
	"SMOVE {42} b:{42} member":                       true,
	"LMOVE {42} b LEFT LEFT":                         false,
	"RPOPLPUSH {42} b":                               false,
	"SINTERSTORE {42} b:{42} c":                      false,
	"PFMERGE {42} b":                                 false,
	"ZRANGESTORE {42} b 0 1":                         false,
	"GEOSEARCHSTORE {42} b x":                        false,
	"ZUNIONSTORE {42} 2 a:{42} b:{42}":               true,
	"ZUNIONSTORE {42} 2 a:{42} b":                    false,
	"ZINTERSTORE {42} 1 redlock-gate:{42} WEIGHTS 1": false,
	"ZINTERSTORE {42} 1 a:{42} WEIGHTS 1":            true,
	"ZDIFFSTORE {42} +1 a:{42}":                      false, // who knows
	"ZDIFFSTORE {42} 3 a:{42}":                       false,
	"ZDIFFSTORE {42} -1 a:{42}":                      false,
	"ZDIFFSTORE {42} 99999999999999999999 a:{42}":    false,
	"ZDIFFSTORE {42}":                                false,
	"ZDIFFSTORE {42} 0":                              true, // the server refuses it
	"SORT {42} BY w_*":                               false,
	"GEORADIUS {42} 1 1 1 m STORE b":                 false,
	"COPY {42} b:{42} DB 1":                          false,
	"MOVE {42} 1":                                    false,
	"FLUSHALL {42}":                                  false,
	"KEYS {42}":                                      false,
	"MIGRATE {42} 1 b 0 1":                           false,
	"EVAL {42}":                                      false,
	"NOSUCH {42}":                                    false,
	"BLPOP {42} b 1":                                 false,
}

// TestEveryKeyIsChecked: also those that do not come first, and nothing is sent
// whose keys are not known.
func TestEveryKeyIsChecked(t *testing.T) {
	c := &conn{}
	w := open(t, c)
	for command, good := range letThrough {
		c.sent = nil
		c.reply = []any{"ok", "1"}
		args := strings.Fields(command)
		_, err := w.Do(t.Context(), args[0], args[1], args[2:]...)
		if good && (err != nil || c.sent == nil) {
			t.Errorf("%s: %v", command, err)
		}
		if !good && (!errors.Is(err, redisgate.ErrBadKey) || c.sent != nil) {
			t.Errorf("%s: %v, sent: %v", command, err, c.sent != nil)
		}
	}
	if _, err := w.Do(t.Context(), "MSET", "a:{42}", "1", "b:{42}", "2"); err != nil {
		t.Fatal(err)
	}
	want := []string{"3", "redlock-gate:{42}", "a:{42}", "b:{42}", "exclusive", "5", "MSET", "1", "b:{42}", "2"}
	if got := c.sent[2:]; !slices.Equal(got, want) {
		t.Errorf("sent %q", got)
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
