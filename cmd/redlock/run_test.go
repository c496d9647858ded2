//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

// A machine without any node: the demo works, and says what it is.
func TestDemo(t *testing.T) {
	p := startEnv(t, []string{"REDLOCK_NODES="}, "run", "--demo", "hello", "--", "sh", "-c", `echo "$REDLOCK_FENCE"`)
	if number(t, p.line()) < 1 {
		t.Error("no token")
	}
	p.wantExit(0)
	if !strings.Contains(p.stderr.String(), "nobody else") {
		t.Errorf("not said: %s", p.stderr)
	}
}

// Of two, the second waits and then gets it, with a larger token.
func TestSecondWaitsForTheFirst(t *testing.T) {
	name := lockName(t)
	file := filepath.Join(t.TempDir(), "end")
	first := startEnv(t, []string{helperEnv + "=until", "CLI_TEST_FILE=" + file}, "run", "--json", "--owner", "first", name, os.Args[0])
	first.line()
	second := start(t, "run", name, "sh", "-c", `echo "$REDLOCK_FENCE"`)
	await.True(t, patience, "the second says that it waits, and for whom", func() bool {
		return strings.Contains(second.stderr.String(), "waiting (name="+name+" owner=first")
	})
	run(t, "run", "-n", name, "true").want(t, 75, "")
	touch(t, file)
	first.wantExit(5)
	token := number(t, second.line())
	second.wantExit(0)
	if e, _ := first.event("acquired"); e.Token == 0 || int(e.Token) >= token {
		t.Errorf("tokens %d, then %d", e.Token, token)
	}
	for _, kind := range []string{"acquired", "started", "ended", "released"} {
		if _, ok := first.event(kind); !ok {
			t.Errorf("no event %q", kind)
		}
	}
}

func TestWaitIsBounded(t *testing.T) {
	name := lockName(t)
	holder := start(t, "run", name, "sh", "-c", "echo; exec sleep 1000")
	holder.line()
	begin := time.Now()
	r := run(t, "run", "-w", "0.4", name, "echo", "ran")
	r.want(t, 75, "")
	if took := time.Since(begin); took < 400*time.Millisecond || took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if !strings.Contains(r.stderr, "held") {
		t.Errorf("not said: %s", r.stderr)
	}
	// Quiet and skip have nothing to say: cron would send it by mail.
	for _, args := range [][]string{{"run", "-nq", name, "true"}, {"run", "-n", "--if-held", "skip", name, "true"}} {
		if r := run(t, args...); r.stderr != "" {
			t.Errorf("%q: %s", args, r.stderr)
		}
	}
}

// The lock is renewed: a command may run much longer than the TTL.
func TestLockOutlastsItsTTL(t *testing.T) {
	name := lockName(t)
	file := filepath.Join(t.TempDir(), "end")
	p := startEnv(t, []string{helperEnv + "=until", "CLI_TEST_FILE=" + file}, "run", "--ttl", "0.3", name, os.Args[0])
	p.line()
	run(t, "run", "-w", "1.5", name, "true").want(t, 75, "")
	touch(t, file)
	p.wantExit(5)
}

func TestMinHold(t *testing.T) {
	name := lockName(t)
	begin := time.Now()
	p := start(t, "run", "--json", "--min-hold", "1.5", "--ttl", "0.9", name, "sh", "-c", "exit 7")
	await.True(t, patience, "the command has ended", func() bool { _, ok := p.event("ended"); return ok })
	run(t, "run", "-n", name, "true").want(t, 75, "")
	p.wantExit(7)
	if took := time.Since(begin); took < 1500*time.Millisecond {
		t.Errorf("held for %v", took)
	}
	run(t, "run", "-n", name, "true").want(t, 0, "")
}

// TERM ends the extra time: redlock leaves with the command's code, and the
// lock ends with its TTL, not before.
func TestMinHoldEndedByTERM(t *testing.T) {
	name := lockName(t)
	p := start(t, "run", "--json", "--min-hold", "1000", "--ttl", "2", name, "sh", "-c", "exit 7")
	await.True(t, patience, "the command has ended", func() bool { _, ok := p.event("ended"); return ok })
	p.signal(syscall.SIGTERM)
	p.wantExit(7)
	left, ok := p.event("left")
	if !ok {
		t.Fatal("no event")
	}
	run(t, "run", "-n", name, "true").want(t, 75, "")
	run(t, "run", "-w", "5", name, "true").want(t, 0, "")
	// The lease in the nodes lasts a little longer than its validity.
	if free := time.Since(left.Time); free < time.Duration(left.RemainingMS)*time.Millisecond {
		t.Errorf("free after %v of %d ms", free, left.RemainingMS)
	}
}

// B126 and item 2: kill -9 of redlock takes its command along, and the next
// gets the lock within TTL + 1 s.
func TestB126KillOfTheWrapper(t *testing.T) {
	name := lockName(t)
	p := start(t, "run", "--ttl", "2", name, "sh", "-c", "echo $$; exec sleep 1000")
	child := number(t, p.line())
	second := start(t, "run", name, "sh", "-c", "echo")
	await.True(t, patience, "the second waits", func() bool { return strings.Contains(second.stderr.String(), "waiting") })
	p.signal(syscall.SIGKILL)
	killed := time.Now()
	await.True(t, time.Second, "the command is dead", func() bool { return !alive(child) })
	second.line()
	if took := time.Since(killed); took > 3*time.Second {
		t.Errorf("the second got it after %v", took)
	}
	second.wantExit(0)
}

// Item 3: with three of five frozen there is no quorum, and what the attempt
// may have left on the other two is gone a second later.
func TestThreeOfFiveFrozen(t *testing.T) {
	servers := redisserver.StartN(t, 5)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	list := "--nodes=" + strings.Join(urls, ",")
	run(t, "init", list)
	run(t, "run", list, "n", "true").want(t, 0, "")
	for _, s := range servers[:3] {
		if err := s.Freeze(); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	r := run(t, "run", list, "--connect-wait", "2", "n", "echo", "ran")
	r.want(t, 69, "")
	if took := time.Since(begin); took < 2*time.Second || took > 4*time.Second {
		t.Errorf("gave up after %v, with a connect wait of 2 s", took)
	}
	await.True(t, time.Second, "nothing is left on the live ones", func() bool { return heldOn(t, urls[3:], "n") == 0 })
	// -n does not turn an outage into "held".
	run(t, "run", "-n", list, "--connect-wait", "1", "m", "true").want(t, 69, "")
	if n := heldOn(t, urls[3:], "n"); n != 0 {
		t.Errorf("%d live nodes have the lock again, a second later", n)
	}
	for _, s := range servers[:3] {
		if err := s.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "run", list, "n", "true").want(t, 0, "")
}

// Item 8: of five that try at the same instant, the winner holding until the
// other four have exited, one gets it, each time, and never none.
func TestOneOfFiveWins(t *testing.T) {
	const contenders, rounds = 5, 200
	for round := range rounds {
		name := lockName(t)
		// The command of the winner reads until this closes.
		hold, release, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		codes := make(chan int, contenders)
		for range contenders {
			cmd := command(t, nil, "run", "-nq", name, "cat")
			cmd.Stdin = hold
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() {
				_ = cmd.Wait()
				codes <- cmd.ProcessState.ExitCode()
			}()
		}
		hold.Close()
		// Four have to give up while one holds, or this waits for ever.
		for range contenders - 1 {
			select {
			case code := <-codes:
				if code != exitHeld {
					t.Errorf("round %d: one left with %d instead of %d", round, code, exitHeld)
				}
			case <-time.After(patience):
				t.Fatalf("round %d: more than one runs", round)
			}
		}
		release.Close()
		if code := <-codes; code != 0 {
			t.Errorf("round %d: the last left with %d: nobody won", round, code)
		}
		if t.Failed() {
			return
		}
	}
}

// B127: on a normal end the lock is released before the connections close, on
// all nodes.
func TestB127ReleasedBeforeClosed(t *testing.T) {
	for range 20 {
		name := lockName(t)
		run(t, "run", name, "true").want(t, 0, "")
		// A node that was too busy to answer in time may still be carrying it out.
		await.True(t, time.Second, "no node has the lock", func() bool { return heldOn(t, nodes, name) == 0 })
	}
}

// TestEverydayErrorsAreOneLine: each thing once, what each node said with -v.
func TestEverydayErrorsAreOneLine(t *testing.T) {
	name := lockName(t)
	run(t, "acquire", "--owner", "me", name)
	outage := []string{"run", "--nodes", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--connect-wait", "0.2", "n", "true"}
	held := []string{"run", "-n", name, "true"}
	for _, c := range []struct {
		args  []string
		code  int
		wants string
	}{
		{held, 75, `^redlock: ` + regexp.QuoteMeta(name) + ` is held by "me", (30|2\d)\.\d s left\n$`},
		{outage, 69, `(?m)^redlock: acquire n: no quorum: (0|at most 1) of 3 nodes answered, need 2: .*dial tcp: connect: connection refused$`},
		{[]string{"init", "--nodes", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"}, 69,
			`^redlock: init: all 3 nodes: not sent: dial tcp: connect: connection refused\n$`},
		{[]string{"status", "--nodes", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "n"}, 69,
			`^redlock: inspect n: no quorum: 0 of 3 nodes answered, need 2: all 3 nodes: not sent: dial tcp: connect: connection refused\n$`},
	} {
		r := run(t, c.args...)
		if r.code != c.code || !regexp.MustCompile(c.wants).MatchString(r.stderr) || strings.Count(lastLine(r.stderr), "connection refused") > 1 {
			t.Errorf("%q: exit %d, want %d and %s:\n%s", c.args, r.code, c.code, c.wants, r.stderr)
		}
	}
	for _, mode := range []string{"-v", "--json"} {
		if r := run(t, append([]string{mode}, held...)...); strings.Count(r.stderr, "127.0.0.1:") != 5 {
			t.Errorf("%s does not say what each node said: %s", mode, r.stderr)
		}
	}
}

// What is wrong with some nodes is said although others made a quorum.
func TestNodesThatAreDownAreReported(t *testing.T) {
	urls := append(ownServers(t, 2), "redis://127.0.0.1:1")
	// The one that is down may have records: then the others have lost theirs.
	if r := run(t, "init", "--nodes", strings.Join(urls, ",")); r.code != 69 || strings.Count(r.stdout, "not declared") != 2 {
		t.Fatal(r)
	}
	if r := run(t, "init", "--force", "--nodes", strings.Join(urls, ",")); r.code != 69 || strings.Count(r.stdout, " ok\n") != 2 {
		t.Fatal(r)
	}
	r := run(t, "run", "--nodes", strings.Join(urls, ","), "n", "true")
	r.want(t, 0, "")
	if !strings.Contains(r.stderr, "node does not answer (node=127.0.0.1:1/0") {
		t.Errorf("not said: %q", r.stderr)
	}
	// In JSON too, under the one name that errors have.
	r = run(t, "run", "--json", "--nodes", strings.Join(urls, ","), "n", "true")
	if !strings.Contains(r.stderr, `"error":"not sent`) || strings.Contains(r.stderr, `"err":`) {
		t.Error(r.stderr)
	}
}

func TestJSONErrors(t *testing.T) {
	for _, args := range [][]string{{"run", "--json", "n"}, {"run", "--json", "--nodes", "redis://127.0.0.1:1", "--connect-wait", "0.1", "n", "true"}} {
		r := run(t, args...)
		lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
		var e struct {
			Event string `json:"event"`
			Error string `json:"error"`
			Code  int    `json:"code"`
		}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil || e.Event != "error" || e.Error == "" || e.Code != r.code {
			t.Errorf("%q: %v, %+v in\n%s", args, err, e, r.stderr)
		}
	}
}
