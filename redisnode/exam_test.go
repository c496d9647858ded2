package redisnode

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.com/redlock/internal/node"
)

// answeringConn answers commands, by their first word.
type answeringConn struct {
	mu      sync.Mutex
	sent    [][]string
	replies map[string]any // an error is one
}

func (c *answeringConn) Do(_ context.Context, args ...string) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, args)
	if err, ok := c.replies[args[0]].(error); ok {
		return nil, err
	}
	return c.replies[args[0]], nil
}

func (c *answeringConn) Listen(ctx context.Context, channel string, ready func(), _ func(string)) error {
	if _, err := c.Do(ctx, "SUBSCRIBE", channel); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return ctx.Err()
}

func (c *answeringConn) Close() error { return nil }

func TestExamine(t *testing.T) {
	denied := errors.New("NOPERM this user has no permissions to run the command")
	onKeys := errors.New("NOPERM No permissions to access a key")
	onChannels := errors.New("NOPERM this user has no permissions to access one of the channels used as arguments")
	unknown := errors.New("ERR unknown command 'EVALSHA'")
	for _, plain := range []bool{false, true} {
		c := &answeringConn{replies: map[string]any{
			"INFO": "# Server\r\nredis_version:7.0.15\r\nodd:a:b\r\n\r\n", "EVALSHA": unknown, "PTTL": denied, "GETRANGE": denied, "SUBSCRIBE": onChannels,
			"HGETALL": onKeys, "HMGET": errors.New("WRONGTYPE Operation"), "SET": errors.New("MISCONF Redis is configured"),
			"CONFIG": map[string]any{"save": "", "appendfsync": "everysec"},
		}}
		got, err := New(c, "a").Examine(t.Context(), node.Exam{Keys: node.Keyspace{Namespace: "n", Plain: plain}})
		if err != nil {
			t.Fatal(err)
		}
		want := node.ExamReply{
			Denied: []node.Denial{
				{Command: "EVALSHA", Err: unknown.Error()}, {Command: "PTTL", Err: denied.Error()},
				{Command: "HGETALL", OnKeys: true, Err: onKeys.Error()},
			},
			WrongType: []string{"n:quarantine", "n:tokens"},
			NoWrites:  "MISCONF Redis is configured",
			Info:      map[string]string{"redis_version": "7.0.15", "odd": "a:b"},
			Config:    map[string]string{"save": "", "appendfsync": "everysec"},
		}
		if plain {
			want.Denied = append(want.Denied, node.Denial{Command: "GETRANGE", Err: denied.Error()})
		}
		want.Denied = append(want.Denied, node.Denial{Command: "SUBSCRIBE", OnKeys: true, Err: onChannels.Error()})
		if !reflect.DeepEqual(got, want) {
			t.Errorf("plain %v:\ngot  %+v\nwant %+v", plain, got, want)
		}
		// What could write names the key where nothing is, even if it went wrong; what
		// publishes, the channel on which nobody listens.
		for _, args := range c.sent {
			if strings.Contains("SET DEL PEXPIRE HSET HDEL ZADD ZREM", args[0]) && args[1] != "n:nothing" ||
				strings.Contains("PUBLISH SUBSCRIBE", args[0]) && args[1] != "n:wake:" {
				t.Errorf("%q", args)
			}
		}
	}
}

// TestEveryCommandIsAsked: a hello is refused for want of any command that the scripts
// run, or that hears of a turn, and an exam names each.
func TestEveryCommandIsAsked(t *testing.T) {
	runs := map[string]bool{"SUBSCRIBE": true}
	for _, name := range []string{"common", "lease", "line", "call", "hello", "watch", "tokens", "counters", "configure"} {
		for _, m := range regexp.MustCompile(`\bcall(?:\(|, )'([A-Z]+)'`).FindAllStringSubmatch(source(name), -1) {
			runs[m[1]] = true
		}
	}
	var asked []string
	for _, m := range regexp.MustCompile(`'([A-Z ]{9,})'`).FindAllStringSubmatch(source("hello"), -1) {
		asked = append(asked, strings.Fields(m[1])...)
	}
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(runs)), func(c string) bool { return c == "HGETALL" })
	if slices.Sort(asked); !slices.Equal(asked, want) {
		t.Errorf("hello.lua asks for %q, the scripts run %q", asked, want)
	}
	c := &answeringConn{}
	if _, err := New(c, "a").Examine(t.Context(), node.Exam{}); err != nil {
		t.Fatal(err)
	}
	for command := range runs {
		if !slices.ContainsFunc(c.sent, func(args []string) bool { return args[0] == command }) {
			t.Errorf("an exam does not try %s", command)
		}
	}
}

func TestExamineWhereNobodyIsLetIn(t *testing.T) {
	c := &answeringConn{replies: map[string]any{"INFO": errors.New("NOAUTH Authentication required.")}}
	_, err := New(c, "a").Examine(t.Context(), node.Exam{})
	var call *node.CallError
	if !errors.As(err, &call) || !call.Denied || len(c.sent) != 1 {
		t.Errorf("%v after %q", err, c.sent)
	}
}

func TestPairs(t *testing.T) {
	want := map[string]string{"a": "1", "b": ""}
	for _, reply := range []any{map[string]any{"a": "1", "b": ""}, []any{"a", "1", "b", ""}, []any{"a", "1", "b", nil, "c"}} {
		if got := pairs(reply); !maps.Equal(got, want) {
			t.Errorf("%v: %v", reply, got)
		}
	}
	if got := pairs("x"); got != nil {
		t.Errorf("%v", got)
	}
}
