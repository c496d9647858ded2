package redisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"example.com/redlock/internal/node"
	"example.com/redlock/quorum"
)

var _ quorum.Node = (*Node)(nil)

// fakeConn answers commands by a script of its own and notes them.
type fakeConn struct {
	answer func(command string, args []string) (any, error)
	log    []string
}

func (f *fakeConn) Do(_ context.Context, args ...string) (any, error) {
	command := args[0]
	if command == "SCRIPT" {
		command = "SCRIPT " + args[1]
	}
	f.log = append(f.log, command)
	return f.answer(command, args)
}

func (*fakeConn) Listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (f *fakeConn) Close() error { return nil }

var okReply = []any{"1", "", "A"}

var oneRelease = &node.Call{Keys: keyspace, MaxTTL: 1, Ops: []node.Op{{Kind: node.Release, Name: "x", ID: idA}}}

// server is a fakeConn that knows which scripts are loaded, and can refuse
// commands.
func server(refuse map[string]error) *fakeConn {
	loaded := map[string]bool{}
	f := &fakeConn{}
	f.answer = func(command string, args []string) (any, error) {
		if err := refuse[command]; err != nil {
			return nil, err
		}
		switch command {
		case "SCRIPT LOAD":
			sha := fmt.Sprint("sha", len(args[2]))
			loaded[sha] = true
			return sha, nil
		case "SCRIPT FLUSH":
			clear(loaded)
			return "OK", nil
		case "EVALSHA":
			if !loaded[args[1]] {
				return nil, errors.New("client: reply: NOSCRIPT No matching script. Please use EVAL.")
			}
		}
		return okReply, nil
	}
	return f
}

func wantLog(t *testing.T, f *fakeConn, want string) {
	t.Helper()
	if got := strings.Join(f.log, ", "); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	f.log = nil
}

func call(t *testing.T, n *Node) {
	t.Helper()
	if _, err := n.Call(t.Context(), oneRelease); err != nil {
		t.Fatal(err)
	}
}

func TestB77NoScriptLoadsAndRetriesOnce(t *testing.T) {
	f := server(nil)
	n := New(f, "n")
	call(t, n)
	wantLog(t, f, "SCRIPT LOAD, EVALSHA")
	call(t, n)
	wantLog(t, f, "EVALSHA")
	f.Do(t.Context(), "SCRIPT", "FLUSH")
	f.log = nil
	call(t, n)
	wantLog(t, f, "EVALSHA, SCRIPT LOAD, EVALSHA")

	// A server that keeps forgetting is not asked for ever.
	f = server(map[string]error{"EVALSHA": errors.New("NOSCRIPT No matching script")})
	_, err := New(f, "n").Call(t.Context(), oneRelease)
	wantCallError(t, err, false, false)
	wantLog(t, f, "SCRIPT LOAD, EVALSHA, SCRIPT LOAD, EVALSHA")
}

func TestB79RefusedCommandsFallBackToEvalForGood(t *testing.T) {
	for command, err := range map[string]error{
		"EVALSHA":     errors.New("NOPERM this user has no permissions to run the 'evalsha' command"),
		"SCRIPT LOAD": errors.New("ERR unknown command 'SCRIPT'"),
	} {
		f := server(map[string]error{command: err})
		n := New(f, "n")
		call(t, n)
		f.log = nil
		call(t, n)
		wantLog(t, f, "EVAL")
	}
}

func TestB79NothingAllowed(t *testing.T) {
	denied := errors.New("NOPERM this user has no permissions")
	f := server(map[string]error{"EVALSHA": denied, "EVAL": denied, "SCRIPT LOAD": denied})
	n := New(f, "n")
	for range 2 {
		_, err := n.Call(t.Context(), oneRelease)
		wantCallError(t, err, false, true)
	}
	// Once the rights are there, the cheaper way is taken again.
	f.answer = server(nil).answer
	call(t, n)
	f.log = nil
	call(t, n)
	wantLog(t, f, "EVALSHA")
}

func wantCallError(t *testing.T, err error, sent, denied bool) {
	t.Helper()
	var call *node.CallError
	if !errors.As(err, &call) || call.Sent != sent || call.Denied != denied {
		t.Errorf("%v: got %+v, want sent %v, denied %v", err, call, sent, denied)
	}
}

func TestErrorsOfCalls(t *testing.T) {
	for _, test := range []struct {
		err          error
		sent, denied bool
	}{
		{err: errors.New("EOF"), sent: true},
		{err: context.DeadlineExceeded, sent: true},
		{err: errors.New("ERR Error running script"), sent: true},
		{err: notSent(context.DeadlineExceeded)},
		{err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}},
		{err: &net.OpError{Op: "read", Err: errors.New("connection reset")}, sent: true},
		{err: errors.New("LOADING Redis is loading the dataset in memory")},
		{err: errors.New("wrapped: READONLY You can't write against a read only replica.")},
		{err: errors.New("BUSY Redis is busy running a script.")},
		{err: errors.New("MASTERDOWN Link with MASTER is down")},
		{err: errors.New("MISCONF Redis is configured to save RDB snapshots")},
		{err: errors.New("NOREPLICAS Not enough good replicas to write.")},
		{err: errors.New("CLUSTERDOWN Hash slot not served")},
		{err: errors.New("CROSSSLOT Keys in request don't hash to the same slot")},
		{err: errors.New("NOPERM this user has no permissions to run the 'eval' command"), denied: true},
		{err: errors.New("NOAUTH Authentication required."), denied: true},
		{err: notSent(errors.New("WRONGPASS invalid username-password pair")), denied: true},
		{err: errors.New("ERR unknown command 'EVAL', with args beginning with: "), denied: true},
		// INFO refused inside the script:
		{err: errors.New("ERR The user executing the script can't run this command or subcommand script: b1, on @user_script:1."), denied: true},
	} {
		f := &fakeConn{answer: func(string, []string) (any, error) { return nil, test.err }}
		n := New(f, "n")
		n.evalOnly.Store(true)
		_, err := n.Call(t.Context(), oneRelease)
		wantCallError(t, err, test.sent, test.denied)
		_, err = n.Hello(t.Context(), node.Hello{Keys: keyspace})
		wantCallError(t, err, test.sent, test.denied)
	}
}

// The errors of all nodes are in one message: each has to be short.
func TestProtectedModeIsSaidInOneSentence(t *testing.T) {
	const sentence = "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user."
	refusal := notSent(errors.New(sentence + " In this mode connections are only accepted from the loopback interface. If you want to"))
	f := &fakeConn{answer: func(string, []string) (any, error) { return nil, refusal }}
	_, err := New(f, "n").Call(t.Context(), oneRelease)
	wantCallError(t, err, false, true)
	if want := "not sent: " + sentence; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestMalformedReplyMayHaveRun(t *testing.T) {
	f := &fakeConn{answer: func(string, []string) (any, error) { return "OK", nil }}
	_, err := New(f, "n").Call(t.Context(), oneRelease)
	wantCallError(t, err, true, false)
	_, err = New(f, "n").Hello(t.Context(), node.Hello{})
	wantCallError(t, err, true, false)
}

func TestB108EveryKeyComesFromTheKeyspace(t *testing.T) {
	f := &fakeConn{}
	var keys []string
	f.answer = func(command string, args []string) (any, error) {
		if command == "EVAL" {
			var n int
			fmt.Sscan(args[2], &n)
			keys = append(keys, args[3:3+n]...)
		}
		return nil, errors.New("EOF")
	}
	n := New(f, "n")
	n.evalOnly.Store(true)
	space := node.Keyspace{Namespace: "app"}
	n.Call(t.Context(), &node.Call{Keys: space, Ops: []node.Op{{Kind: node.Acquire, Name: "a}{b"}, {Kind: node.Inspect, Name: ""}}})
	n.Hello(t.Context(), node.Hello{Keys: space})
	n.Watch(t.Context(), node.Watch{Keys: space})
	n.Tokens(t.Context(), node.Tokens{Keys: space})
	n.Line(t.Context(), node.Line{Keys: space, Name: "a"})
	for _, key := range keys {
		if !strings.HasPrefix(key, "app:") {
			t.Errorf("key %q is outside the namespace", key)
		}
	}
	if len(keys) != 17 {
		t.Errorf("keys %q", keys)
	}
	for _, name := range []string{"common", "lease", "line", "call", "hello", "watch", "tokens", "waiters"} {
		if strings.Contains(source(name), "redlock:") {
			t.Errorf("%s.lua builds keys of its own", name)
		}
	}
}

func TestClosedNodeDoesNotConnect(t *testing.T) {
	n, err := Open("127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	n.Close()
	_, err = n.Call(t.Context(), oneRelease)
	wantCallError(t, err, false, false)
	if !errors.Is(err, errClosed) {
		t.Error(err)
	}
}
