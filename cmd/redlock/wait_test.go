//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
)

// What is handed over lasts for two seconds until it is extended, which takes a while
// over a slow network. The command is not begun with less than its grace left, and the
// handle stands for the whole TTL.
func TestALockThatIsHandedOverIsExtendedFirst(t *testing.T) {
	net := newPartition(t)
	for _, proxy := range net.proxies {
		proxy.SetDelay(faultproxy.ToServer, 50*time.Millisecond)
		proxy.SetDelay(faultproxy.ToClient, 50*time.Millisecond)
	}
	wait := func(args ...string) *process {
		t.Helper()
		end := filepath.Join(t.TempDir(), "end")
		env := []string{helperEnv + "=until", "CLI_TEST_FILE=" + end}
		holder := startEnv(t, env, net.rival("run", "n", os.Args[0])...)
		holder.line()
		p := start(t, net.victim(args...)...)
		await.True(t, patience, "it stands in line", func() bool {
			return strings.Contains(run(t, net.rival("status", "n")...).stdout, "in line") && strings.Contains(p.stderr.String(), "waiting")
		})
		touch(t, end)
		return p
	}
	p := wait("run", "n", "sh", "-c", "sleep 0.3; echo done")
	if line := p.line(); line != "done" {
		t.Errorf("said %q", line)
	}
	p.wantExit(0)

	var got handleLine
	p = wait("acquire", "--json", "n")
	if err := json.Unmarshal([]byte(p.line()), &got); err != nil {
		t.Fatal(err)
	}
	if got.RemainingMS < 15_000 {
		t.Errorf("%d ms remain of 30 s", got.RemainingMS)
	}
}

// status says who waits, in order.
func TestStatusShowsTheLine(t *testing.T) {
	name := lockName(t)
	holder := start(t, "run", "--owner", "first", name, "sh", "-c", "echo; exec sleep 1000")
	holder.line()
	if r := run(t, "status", "--json", name); !strings.Contains(r.stdout, `"waiting":0`) {
		t.Errorf("with nobody in line: %s", r.stdout)
	}
	for i, args := range [][]string{{"--owner", "second"}, {"-s", "--owner", "third"}} {
		start(t, append(append([]string{"run"}, args...), name, "true")...)
		await.True(t, patience, "it stands in line", func() bool {
			return strings.Contains(run(t, "status", name).stdout, fmt.Sprintf("  %d. in line: ", i+1))
		})
	}
	if shown := run(t, "status", name).stdout; !regexp.MustCompile(
		`held by "first".*\n  1\. in line: "second", for \d+s\n  2\. in line: "third", shared, for \d+s\n$`).MatchString(shown) {
		t.Errorf("shown:\n%s", shown)
	}
	var st statusLine
	if err := json.Unmarshal([]byte(run(t, "status", "--json", name).stdout), &st); err != nil {
		t.Fatal(err)
	}
	if *st.Waiting != 2 || len(st.Line) != 2 || st.Line[0].Owner != "second" || st.Line[0].Shared || !st.Line[1].Shared || st.Line[1].Since == "" {
		t.Errorf("%d, %+v", *st.Waiting, st.Line)
	}
}

// Readers share the lock, and a writer waits for them.
func TestShared(t *testing.T) {
	name, end := lockName(t), filepath.Join(t.TempDir(), "end")
	env := []string{helperEnv + "=until", "CLI_TEST_FILE=" + end}
	reader := func() *process { return startEnv(t, env, "run", "-s", name, os.Args[0]) }
	first, second := reader(), reader()
	first.line()
	second.line()
	run(t, "run", "-n", name, "true").want(t, 75, "")
	run(t, "run", "-ns", name, "echo", "read").want(t, 0, "read\n")
	writer := start(t, "run", name, "echo", "wrote")
	await.True(t, patience, "the writer waits", func() bool { return strings.Contains(writer.stderr.String(), "waiting") })
	touch(t, end)
	first.wantExit(5)
	second.wantExit(5)
	writer.wantExit(0)
	if said := writer.rest(); said != "wrote\n" {
		t.Errorf("said %q", said)
	}
}

// On a terminal a status says what is waited for, and leaves no trace.
func TestStatusOfAWaitOnATerminal(t *testing.T) {
	name, end := lockName(t), filepath.Join(t.TempDir(), "end")
	env := []string{helperEnv + "=until", "CLI_TEST_FILE=" + end}
	holder := startEnv(t, env, "run", "--owner", "first", name, os.Args[0])
	holder.line()
	c := newConsole(t, command(t, nil, "run", name, "echo", "ran"))
	c.expect("redlock: waiting for " + name + ", held by first, ")
	c.expect("s left")
	after := start(t, "run", name, "true")
	await.True(t, patience, "another stands behind", func() bool {
		return strings.Contains(run(t, "status", name).stdout, "  2. in line: ")
	})
	touch(t, end)
	c.expect(strings.Repeat(" ", len("redlock: waiting for "+name)))
	c.expect("\rran\r\n")
	if shown := c.seen.String(); strings.Contains(shown, "\n") && strings.Index(shown, "\n") < strings.Index(shown, "ran") {
		t.Errorf("the status was not written over: %q", shown)
	}
	after.wantExit(0)
}

// A job in the background does not write into what is typed.
func TestNoStatusFromTheBackground(t *testing.T) {
	name := lockName(t)
	holder := start(t, "run", "--owner", "first", name, "sh", "-c", "echo; exec sleep 1000")
	holder.line()
	sh := newShell(t)
	sh.send(`"$R" run ` + name + " true &\n")
	sh.expect("redlock: waiting (name=" + name + " owner=first")
	if shown := sh.seen.String(); strings.Contains(shown, "waiting for") {
		t.Errorf("%q", shown)
	}
	sh.send("kill %1\n")
}
