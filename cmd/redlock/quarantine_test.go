//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

// shortQuarantine is that of the shortest max TTL, 2 s: 1 % more for clocks, and half of it
// for attempts.
const shortQuarantine = 3020 * time.Millisecond

// forgetful is a cluster of three whose quarantines are short.
type forgetful struct {
	t       *testing.T
	servers []*redisserver.Server
	env     []string
}

func newForgetful(t *testing.T) *forgetful {
	t.Helper()
	f := &forgetful{t: t, servers: redisserver.StartN(t, 3)}
	var urls []string
	for _, s := range f.servers {
		urls = append(urls, s.URL())
	}
	f.env = []string{"REDLOCK_NODES=" + strings.Join(urls, ",")}
	f.run("init").want(t, 0, "")
	return f
}

// args are those of a redlock, with the flags of the cluster.
func (f *forgetful) args(args ...string) []string { return append([]string{"--max-ttl", "2"}, args...) }

func (f *forgetful) run(args ...string) result {
	f.t.Helper()
	r := runEnv(f.t, f.env, f.args(args...)...)
	if args[0] == "init" {
		r.stdout = "" // what it says of the nodes
	}
	return r
}

// forget kills one server for good and restarts another one empty, so that the vote of
// that one decides. It returns the time from before.
func (f *forgetful) forget(dead, forgets int) time.Time {
	f.t.Helper()
	if err := f.servers[dead].Kill(); err != nil {
		f.t.Fatal(err)
	}
	return f.restart(forgets)
}

func (f *forgetful) restart(which ...int) time.Time {
	f.t.Helper()
	before := time.Now()
	for _, i := range which {
		if err := f.servers[i].Kill(); err != nil {
			f.t.Fatal(err)
		}
		if err := f.servers[i].Restart(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
	return before
}

func (f *forgetful) votes(i int) bool {
	reply := redisDo(f.t, f.servers[i].URL(), "EXISTS", "redlock:quarantine")
	return reply == ":0" && redisDo(f.t, f.servers[i].URL(), "EXISTS", "redlock:node") == ":1"
}

// Commands wait for a quarantine, also those that do not wait for holders, and say at once for
// which node, why, and how long. With less time than that they leave with 69.
func TestRunWaitsForAQuarantine(t *testing.T) {
	t.Parallel()
	f := newForgetful(t)
	began := f.forget(2, 0)
	node := f.servers[0].Addr()
	told := func(what, text string) {
		t.Helper()
		for _, want := range []string{node, "quarantine", "lost its data", "vote in "} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q: %s", what, want, text)
			}
		}
		if strings.Contains(text, "init") {
			t.Errorf("%s: others have records, and init declares nothing: %s", what, text)
		}
	}

	brief := f.run("run", "-w", "0.5", "n", "true")
	brief.want(t, 69, "")
	told("run -w 0.5", brief.stderr)
	if last := lastLine(brief.stderr); strings.Count(last, node) != 1 {
		t.Errorf("said more than once: %s", last)
	}

	asked := time.Now()
	p := startEnv(t, f.env, f.args("run", "-n", "n", "cat")...)
	await.True(t, patience, "it says that it waits", func() bool { return strings.Contains(p.stderr.String(), "waiting") })
	if took := time.Since(asked); took > time.Second+delaySlack {
		t.Errorf("it was silent for %v", took)
	}
	told("run -n", p.stderr.String())
	await.True(t, time.Second, "it says so of the node while it waits", func() bool {
		return strings.Contains(p.stderr.String(), "node does not vote, because it may have forgotten leases (node="+node)
	})
	status := f.run("status")
	if !regexp.MustCompile(regexp.QuoteMeta(node) + `\S* quarantined: lost its data; votes in [012](\.\d)?s`).MatchString(status.stdout) {
		t.Errorf("status: %+v", status)
	}
	p.wantExit(0)
	if took := time.Since(began); took < shortQuarantine || took > shortQuarantine+delaySlack+time.Second {
		t.Errorf("it ran after %v, want %v", took, shortQuarantine)
	}

	holder := startEnv(t, f.env, f.args("run", "n", "sh", "-c", "echo; exec sleep 1000")...)
	holder.line()
	f.run("run", "-n", "n", "true").want(t, exitHeld, "")
}

// A command that waits says for which nodes, and why.
func TestRunSaysWhichNodesItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newForgetful(t)
	for _, s := range f.servers[1:] {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	r := f.run("run", "-w", "1", "n", "true")
	r.want(t, 69, "")
	line, _, _ := strings.Cut(r.stderr, "\n")
	want := fmt.Sprintf(`1 of 3 nodes answered, need 2: %s/0, %s/0: `, f.servers[1].Addr(), f.servers[2].Addr())
	if !strings.HasPrefix(line, "redlock: waiting (name=n ") || !strings.Contains(line, want) {
		t.Errorf("%s\nwant %s", r.stderr, want)
	}
}

// A durable node is marked in what status says, and a line still ends with ok.
func TestStatusSaysWhichNodesAreDurable(t *testing.T) {
	t.Parallel()
	always := redisserver.StartN(t, 1, "--appendonly", "yes", "--appendfsync", "always")[0]
	list := "--nodes=" + always.URL() + "," + redisserver.StartN(t, 1)[0].URL()
	if r := run(t, "init", "--durable", list); !strings.Contains(r.stdout, "(durable) declared\n") || strings.Count(r.stdout, "(durable)") != 1 {
		t.Errorf("init: %+v", r)
	}
	r := run(t, "status", list)
	if want := always.Addr() + "/0 (durable) ok\n"; r.code != 0 || !strings.HasPrefix(r.stdout, want) || strings.Count(r.stdout, "durable") != 1 {
		t.Errorf("%+v, want %q", r, want)
	}
	lines := strings.SplitAfter(run(t, "status", "--json", list).stdout, "\n")
	for i, durable := range []bool{true, false} {
		if n := decode[nodeLine](t, lines[i]); n.Durable != durable {
			t.Errorf("%+v", n)
		}
	}
}

// A blank node among others with records is not told to be declared.
func TestStatusOfANodeThatLostItsData(t *testing.T) {
	t.Parallel()
	f := newForgetful(t)
	f.restart(1)
	r := f.run("status")
	if want := f.servers[1].Addr() + "/0 new: lost its data"; !strings.Contains(r.stdout, want) || strings.Contains(r.stdout, "declare") {
		t.Errorf("%+v, want %q", r, want)
	}
}

// A node that only short-lived commands ever look at votes again, after as much time as
// it takes, and not before.
func TestShortCommandsEndAQuarantine(t *testing.T) {
	t.Parallel()
	f := newForgetful(t)
	began := f.restart(1)
	commands := 0
	for ; !f.votes(1); commands++ {
		if time.Since(began) > patience+10*time.Second {
			t.Fatalf("no vote after %d commands", commands)
		}
		f.run("run", "-n", "x", "true").want(t, 0, "")
	}
	if took := time.Since(began); took < shortQuarantine {
		t.Errorf("the node voted after %v, want %v", took, shortQuarantine)
	}
	if commands < 5 {
		t.Errorf("%d commands: not one of them was short", commands)
	}
	t.Logf("%d commands in %v", commands, time.Since(began))
}

// With counter-only a node whose counters nobody can tell stays out, and init --force
// brings it back.
func TestInitForce(t *testing.T) {
	t.Parallel()
	f := newForgetful(t)
	config := filepath.Join(t.TempDir(), "redlock.yaml")
	if err := os.WriteFile(config, []byte("counter-only: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.run("run", "n", "true").want(t, 0, "")
	f.forget(2, 0)
	r := f.run("run", "--config", config, "-w", fmt.Sprint(shortQuarantine.Seconds()+1), "n", "true")
	r.want(t, 69, "")
	for _, want := range []string{f.servers[0].Addr(), "too few", "CounterOnly", "init --force"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("not said %q: %s", want, r.stderr)
		}
	}
	f.run("init", "--config", config).want(t, 69, "") // one node is dead, and one stays out
	if f.votes(0) {
		t.Error("init without --force ended the quarantine")
	}
	f.run("init", "--config", config, "--force").want(t, 69, "") // one is dead
	if !f.votes(0) {
		t.Error("init --force did not end the quarantine")
	}
	f.run("run", "--config", config, "-n", "n", "true").want(t, 0, "")
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
