//go:build linux

package gatetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"example.com/redlock/fence"
	"example.com/redlock/fence/filegate"
	"example.com/redlock/fence/internal/gatemodel"
	"example.com/redlock/fence/redisgate"
	"example.com/redlock/fence/sqlgate"
	"example.com/redlock/testkit/redisserver"
)

// conn is a redisgate.Conn over rueidis.
type conn struct{ rueidis.Client }

func (c conn) Do(ctx context.Context, args ...string) (any, error) {
	return c.Client.Do(ctx, c.B().Arbitrary(args...).Build()).ToAny()
}

func dial(address string) (conn, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true, ForceSingleClient: true})
	return conn{c}, err
}

func redis(t *testing.T) conn {
	t.Helper()
	c, err := dial(redisserver.StartN(t, 1)[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func redisGate(t *testing.T, c conn, tag string) *redisgate.Gate {
	t.Helper()
	g, err := redisgate.New(c, tag)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func redisWriter(t *testing.T, g *redisgate.Gate, token fence.Token) *redisgate.Writer {
	t.Helper()
	w, err := g.Open(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestB26Redis: A reads and is paused; B, who has the lock now, opens the gate,
// reads and writes; A's write comes too late.
func TestB26Redis(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := redis(t)
	g := redisGate(t, c, "42")
	a := redisWriter(t, g, 5)
	if v, err := a.Do(ctx, "SET", "stock:{42}", "10"); v != "OK" || err != nil {
		t.Fatal(v, err)
	}
	b := redisWriter(t, g, 6)
	_, err := a.Do(ctx, "SET", "stock:{42}", "9")
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok || stale.Claim.Token != 5 || stale.Seen.Token != 6 || stale.Resource != "42" {
		t.Errorf("late write: %v", err)
	}
	if _, err := a.Do(ctx, "GET", "stock:{42}"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late read: %v", err)
	}
	if v, err := b.Do(ctx, "DECRBY", "stock:{42}", "3"); v != int64(7) || err != nil {
		t.Error(v, err)
	}
	if v, err := b.Do(ctx, "GET", "stock:{42}"); v != "7" || err != nil {
		t.Error(v, err)
	}
	if _, err := g.Open(ctx, 5); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late open: %v", err)
	}
}

// TestB26RedisWithoutGateAnUpdateIsLost is what the gate is for: the same story
// without it.
func TestB26RedisWithoutGateAnUpdateIsLost(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := redis(t)
	for _, value := range []string{"10" /* A and B read this */, "7" /* B */, "9" /* A wakes up */} {
		if _, err := c.Do(ctx, "SET", "stock:{42}", value); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := c.Do(ctx, "GET", "stock:{42}"); v != "9" || err != nil {
		t.Errorf("%v, %v: B's update was not lost", v, err)
	}
}

func TestRedisAgainstModel(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := redis(t)
	for seed := range uint64(3) {
		g := redisGate(t, c, fmt.Sprint(seed))
		key := fmt.Sprintf("value:{%d}", seed)
		text := func(v any, err error) (string, error) {
			s, _ := v.(string)
			return s, err
		}
		gatemodel.Run(t, seed, 2000, func(claim fence.Claim) (*gatemodel.Opened, error) {
			if claim.Shared {
				r, err := g.OpenShared(ctx, claim.Token)
				return &gatemodel.Opened{Read: func() (string, error) { return text(r.Do(ctx, "HGET", key, "f")) }}, err
			}
			w, err := g.Open(ctx, claim.Token)
			return &gatemodel.Opened{
				Read: func() (string, error) { return text(w.Do(ctx, "HGET", key, "f")) },
				Write: func(s string) error {
					_, err := w.Do(ctx, "HSET", key, "f", s)
					return err
				},
			}, err
		})
	}
}

// TestRedisReplies: they come as they are, errors as errors, and a failure
// changes nothing.
func TestRedisReplies(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	w := redisWriter(t, redisGate(t, redis(t), "x"), 5)
	for _, test := range []struct{ command, want string }{
		{"GET {x}", "<nil>"},
		{"SET {x} 1 EX 100", "OK"},
		{"GET {x}", "1"},
		{"INCRBY {x} 41", "42"},
		{"HGETALL h:{x}", "[]"},
		{"HSET h:{x} a 1 b 2", "2"},
		{"HGETALL h:{x}", "[a 1 b 2]"},
		{"HMGET h:{x} a none b", "[1 <nil> 2]"},
		{"INCR h:{x}", "WRONGTYPE"},
		{"NOSUCH {x}", "is not known"},
		{"DEL redlock-gate:{x}", "keeps its tokens"},
		{"MSET a:{x} 1 b:{x} 2", "OK"},
		{"MGET a:{x} b:{x} c:{x}", "[1 2 <nil>]"},
		{"DEL h:{x} a:{x} b:{x}", "3"},
	} {
		args := strings.Fields(test.command)
		v, err := w.Do(ctx, args[0], args[1], args[2:]...)
		if err != nil {
			v = err
		}
		if got := fmt.Sprint(v); got != test.want && (err == nil || !strings.Contains(got, test.want)) {
			t.Errorf("%s: %s, want %s", test.command, got, test.want)
		}
	}
}

// recorder is a redisgate.Conn that says whether a command was let through.
type recorder struct{ sent bool }

func (r *recorder) Do(context.Context, ...string) (any, error) {
	r.sent = true
	return []any{"ok", "0"}, nil
}

// TestRedisKeysOfCommands: what the server itself takes for keys are the keys that
// the gate checks, for every command that the server has.
func TestRedisKeysOfCommands(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := redis(t)
	reply, err := c.Do(ctx, "COMMAND", "LIST")
	if err != nil {
		t.Fatal(err)
	}
	r := new(recorder)
	g, err := redisgate.New(r, "x")
	if err != nil {
		t.Fatal(err)
	}
	w := redisWriter(t, g, 5)
	through, refused := make(map[string]bool), make(map[string]bool)
	for _, name := range reply.([]any) {
		command := name.(string)
		for _, args := range argLists() {
			reply, err := c.Do(ctx, append([]string{"COMMAND", "GETKEYS", command, "{x}"}, args...)...)
			keys, _ := reply.([]any)
			r.sent = false
			_, refusal := w.Do(ctx, command, "{x}", args...)
			switch {
			case r.sent && err != nil && strings.Contains(err.Error(), "no key arguments"):
				t.Errorf("%s has no keys", command)
			case err != nil: // the arguments are wrong
			case r.sent && slices.Contains(keys, any("2")):
				t.Errorf("%s {x} %q: the server takes other keys: %q", command, args, keys)
			case r.sent:
				through[command] = true
			case !errors.Is(refusal, redisgate.ErrBadKey):
				t.Error(refusal)
			case !slices.Contains(keys, any("2")):
				refused[command] = true
			}
		}
	}
	for command := range through {
		delete(refused, command)
	}
	t.Logf("%d commands may be used; not these, which take a key of the gate: %v", len(through), slices.Sorted(maps.Keys(refused)))
	for _, command := range []string{"hincrby", "mset", "zunionstore", "rename", "del"} {
		if !through[command] {
			t.Errorf("%s may not be used", command)
		}
	}
}

// argLists are arguments to come after the first key: "2" is a number, of keys for
// instance, and no key of the gate; {x} is one.
func argLists() (lists [][]string) {
	for length := range 8 {
		for mask := range 1 << min(length, 3) {
			var args []string
			for i := range length {
				args = append(args, []string{"2", "{x}"}[mask>>i&1])
			}
			lists = append(lists, args)
		}
	}
	return lists
}

// TestRedisReadersDoNotWrite: the server itself refuses it.
func TestRedisReadersDoNotWrite(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	r, err := redisGate(t, redis(t), "x").OpenShared(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Do(ctx, "SET", "{x}", "1"); err == nil {
		t.Error("a reader wrote")
	}
	if v, err := r.Do(ctx, "GET", "{x}"); v != nil || err != nil {
		t.Error(v, err)
	}
}

// TestF81RedisForgets: the server has lost its memory. Whoever had opened the gate
// must open it again.
func TestF81RedisForgets(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := redis(t)
	g := redisGate(t, c, "x")
	w := redisWriter(t, g, 5)
	if _, err := c.Do(ctx, "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Do(ctx, "SET", "{x}", "1"); !errors.Is(err, fence.ErrNotOpen) {
		t.Error(err)
	}
	if _, err := redisWriter(t, g, 5).Do(ctx, "SET", "{x}", "1"); err != nil {
		t.Error(err)
	}
}

// TestRedisDamagedGate: what is no number lets nobody in and stays as it is. The
// largest tokens are told apart.
func TestRedisDamagedGate(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c := redis(t)
	g := redisGate(t, c, "x")
	w := redisWriter(t, g, 5)
	for _, field := range []string{"exclusive", "shared"} {
		for _, bad := range []string{"", "1e3", "0x10", " 1", "-1", "9007199254740992", "12345678901234567890"} {
			if _, err := c.Do(ctx, "HSET", "redlock-gate:{x}", field, bad); err != nil {
				t.Fatal(err)
			}
			_, err1 := g.Open(ctx, 6)
			_, err2 := g.OpenShared(ctx, 6)
			_, err3 := w.Do(ctx, "SET", "{x}", "1")
			if err1 == nil || err2 == nil || err3 == nil {
				t.Errorf("%s %q was believed: %v, %v, %v", field, bad, err1, err2, err3)
			}
		}
		if _, err := c.Do(ctx, "HDEL", "redlock-gate:{x}", field); err != nil {
			t.Fatal(err)
		}
		w = redisWriter(t, g, 5)
	}
	top := redisWriter(t, g, fence.MaxToken)
	if _, err := g.Open(ctx, fence.MaxToken-1); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	if v, err := c.Do(ctx, "HGET", "redlock-gate:{x}", "exclusive"); v != fence.MaxToken.String() || err != nil {
		t.Error(v, err)
	}
	if _, err := top.Do(ctx, "GET", "{x}"); err != nil {
		t.Error(err)
	}
}

// TestTooLargeTokenIsTakenBack: what docs/gates.md tells an operator to do. Late
// holders stay out, and the next one gets in.
func TestTooLargeTokenIsTakenBack(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, db, path := redis(t), sqlite(t), filepath.Join(t.TempDir(), "stock")
	if _, err := db.Exec(sqlgate.Schema); err != nil {
		t.Fatal(err)
	}
	inRedis, inSQL, inFile := redisGate(t, c, "x"), sqlgate.New(&sqlgate.Options{Placeholders: sqlgate.Question}), filegate.New(path)
	open := map[string]func(fence.Token, bool) error{
		"redis": func(token fence.Token, shared bool) (err error) {
			if shared {
				_, err = inRedis.OpenShared(ctx, token)
			} else {
				_, err = inRedis.Open(ctx, token)
			}
			return err
		},
		"sql": func(token fence.Token, shared bool) error {
			do := inSQL.Do
			if shared {
				do = inSQL.DoShared
			}
			return do(ctx, db, "x", token, func(*sql.Tx) error { return nil })
		},
		"file": func(token fence.Token, shared bool) (err error) {
			if shared {
				_, err = inFile.OpenShared(ctx, token)
			} else {
				_, err = inFile.Open(ctx, token)
			}
			return err
		},
	}
	for what, open := range open {
		if err := errors.Join(open(1_000_000, false), open(2_000_000, true)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err1 := c.Do(ctx, "HSET", "redlock-gate:{x}", "exclusive", "33", "shared", "0")
	_, err2 := db.Exec("UPDATE redlock_gate SET exclusive_token = 33, shared_token = 0 WHERE resource = 'x'")
	err3 := os.WriteFile(path+".gate", []byte("exclusive 33\nshared 0\n"), 0o600)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for what, open := range open {
		if err := open(32, false); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: a late holder: %v", what, err)
		}
		if err := errors.Join(open(33, false), open(34, true), open(35, false)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
