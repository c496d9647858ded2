package redisnode

import (
	"context"
	"strings"
	"sync"

	"example.com/redlock/internal/node"
)

// probe is a command as the scripts and lists use it, with arguments that change
// nothing: the server looks at the user's rights before it looks at them.
type probe struct {
	command string
	args    []string
}

// anySHA is the name of a script that no server has.
const anySHA = "0000000000000000000000000000000000000000"

func (n *Node) probes(k node.Keyspace) []probe {
	key := k.Nothing()
	probes := []probe{
		{"EVAL", []string{"EVAL", "return 1", "0"}},
		{"EVALSHA", []string{"EVALSHA", anySHA, "0"}},
		{"SCRIPT LOAD", []string{"SCRIPT", "LOAD", n.hello.source}},
		{"TIME", []string{"TIME"}},
		{"GET", []string{"GET", key}},
		{"SET", []string{"SET", key, "", "no such option"}},
		{"DEL", []string{"DEL", key}},
		{"EXISTS", []string{"EXISTS", key}},
		{"PTTL", []string{"PTTL", key}},
		{"PEXPIRE", []string{"PEXPIRE", key, "1", "GT"}},
		{"HGET", []string{"HGET", key, ""}},
		{"HMGET", []string{"HMGET", key, ""}},
		{"HLEN", []string{"HLEN", key}},
		{"HSET", []string{"HSET", key, "a field", "a value", "a field without"}},
		{"HDEL", []string{"HDEL", key, ""}},
		{"HGETALL", []string{"HGETALL", key}},
		{"ZADD", []string{"ZADD", key, "XX", "0", ""}},
		{"ZREM", []string{"ZREM", key, ""}},
		{"ZCARD", []string{"ZCARD", key}},
		{"ZCOUNT", []string{"ZCOUNT", key, "0", "0"}},
		{"ZRANGE", []string{"ZRANGE", key, "0", "0"}},
		{"ZRANGEBYSCORE", []string{"ZRANGEBYSCORE", key, "0", "0"}},
		{"ZREVRANGE", []string{"ZREVRANGE", key, "0", "0"}},
		{"ZRANK", []string{"ZRANK", key, ""}},
		{"ZSCORE", []string{"ZSCORE", key, ""}},
		{"PUBLISH", []string{"PUBLISH", k.Channel(nobody), ""}},
		{"SCAN", []string{"SCAN", firstCursor, "MATCH", k.Glob("*"), "COUNT", "1"}},
	}
	if k.Plain {
		probes = append(probes, probe{"GETRANGE", []string{"GETRANGE", key, "0", "0"}})
	}
	return probes
}

// Examine asks the server about itself. An error is a *node.CallError; a command
// that is not permitted is none.
func (n *Node) Examine(ctx context.Context, e node.Exam) (node.ExamReply, error) {
	var r node.ExamReply
	info, err := n.conn.Do(ctx, "INFO")
	switch denial, denied := denialOf("INFO", err); {
	case denied:
		r.Denied = append(r.Denied, denial)
	case err != nil:
		return r, callError(err)
	default:
		text, _ := info.(string)
		r.Info = infoFields(text)
	}
	probes := n.probes(e.Keys)
	errs := n.doAll(ctx, probes)
	for i, p := range probes {
		if denial, denied := denialOf(p.command, errs[i]); denied {
			r.Denied = append(r.Denied, denial)
		} else if p.command == "SET" && errs[i] != nil && containsAny(errs[i].Error(), refusedCodes) {
			r.NoWrites = errs[i].Error()
		}
	}
	if denial, denied := denialOf("SUBSCRIBE", n.tryListening(ctx, e.Keys)); denied {
		r.Denied = append(r.Denied, denial)
	}
	own := []probe{
		{e.Keys.Guard(), []string{"GET", e.Keys.Guard()}},
		{e.Keys.Quarantine(), []string{"HMGET", e.Keys.Quarantine(), ""}},
		{e.Keys.Tokens(), []string{"HMGET", e.Keys.Tokens(), ""}},
	}
	for i, err := range n.doAll(ctx, own) {
		if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
			r.WrongType = append(r.WrongType, own[i].command)
		}
	}
	if reply, err := n.conn.Do(ctx, "CONFIG", "GET", "appendfsync", "save"); err == nil {
		r.Config = pairs(reply)
	}
	return r, callErrorOf(ctx)
}

// tryListening subscribes for a moment. It is no probe: a connection that has
// subscribed is of no more use for commands.
func (n *Node) tryListening(ctx context.Context, k node.Keyspace) error {
	ctx, heard := context.WithCancel(ctx)
	defer heard()
	return n.conn.Listen(ctx, k.Channel(nobody), heard, func(string) {})
}

// callErrorOf is the error of an exam that ran out of time.
func callErrorOf(ctx context.Context) error {
	if ctx.Err() != nil {
		return callError(ctx.Err())
	}
	return nil
}

// doAll sends commands without waiting for each other's replies, and returns their
// errors.
func (n *Node) doAll(ctx context.Context, probes []probe) []error {
	errs := make([]error, len(probes))
	var wg sync.WaitGroup
	for i, p := range probes {
		wg.Go(func() { _, errs[i] = n.conn.Do(ctx, p.args...) })
	}
	wg.Wait()
	return errs
}

// denialOf reads whether err means that a command may not be run. A login that
// is refused is none.
func denialOf(command string, err error) (node.Denial, bool) {
	if err == nil || !isRefusal(err) {
		return node.Denial{}, false
	}
	return node.Denial{Command: command, OnKeys: strings.Contains(err.Error(), "to access"), Err: err.Error()}, true
}

// infoFields reads the fields that INFO tells.
func infoFields(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// pairs reads a reply of names and values, which clients hand on in one of two
// ways. It is nil for any other reply.
func pairs(reply any) map[string]string {
	fields := make(map[string]string)
	switch reply := reply.(type) {
	case map[string]any:
		for name, value := range reply {
			fields[name], _ = value.(string)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			name, _ := reply[i].(string)
			fields[name], _ = reply[i+1].(string)
		}
	default:
		return nil
	}
	return fields
}
