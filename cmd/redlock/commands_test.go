//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

// decode reads the one JSON object on a line.
func decode[T any](t *testing.T, line string) (v T) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil || strings.Count(strings.TrimSpace(line), "\n") != 0 {
		t.Fatalf("%v in %q", err, line)
	}
	return v
}

func TestHandleGoesFromCommandToCommand(t *testing.T) {
	name := lockName(t)
	r := run(t, "acquire", "-n", "--ttl", "5", name)
	if r.code != 0 || strings.Count(r.stdout, "\n") != 1 {
		t.Fatal(r)
	}
	first := strings.TrimSpace(r.stdout)
	run(t, "run", "-n", name, "true").want(t, 75, "")

	got := decode[handleLine](t, run(t, "extend", "--json", "--ttl", "6", "--owner", "next", first).stdout)
	if got.Name != name || got.Token == 0 || got.TTLMS != 6000 || got.Owner != "next" || got.RemainingMS < 3000 || got.RemainingMS > 6000 || got.Handle == first {
		t.Errorf("%+v", got)
	}
	// The first is spent.
	if r := run(t, "extend", first); r.code != 79 || !strings.Contains(r.stderr, "the handle has been used") {
		t.Error(r)
	}
	run(t, "release", first).want(t, 79, "")
	run(t, "run", "-n", name, "true").want(t, 75, "")

	// By standard input, so that it is not in the list of processes.
	cmd := command(t, nil, "release", "-")
	cmd.Stdin = strings.NewReader(got.Handle + "\n")
	startCommand(t, cmd).wantExit(0)
	run(t, "run", "-n", name, "true").want(t, 0, "")
	run(t, "release", got.Handle).want(t, 79, "")

	// No handle is in an error.
	if r := run(t, "release", got.Handle); strings.Contains(r.stderr, got.Handle) {
		t.Errorf("the secret is out: %s", r.stderr)
	}
	empty := command(t, nil, "release", "-")
	startCommand(t, empty).wantExit(64)
}

func TestAcquiredLockEndsWithItsTTL(t *testing.T) {
	name := lockName(t)
	begin := time.Now()
	line := decode[handleLine](t, run(t, "acquire", "--json", "--ttl", "0.8", name).stdout)
	run(t, "run", "-w", "5", name, "true").want(t, 0, "")
	if took := time.Since(begin); took < time.Duration(line.RemainingMS)*time.Millisecond {
		t.Errorf("free after %v of %d ms", took, line.RemainingMS)
	}
	run(t, "extend", line.Handle).want(t, 79, "")
}

// A handle that nobody could read is given back.
func TestAcquireWithoutAReader(t *testing.T) {
	name := lockName(t)
	cmd := command(t, nil)
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", `{ sleep 0.2; "$0" acquire "$1"; echo $? >&2; } | true; true`, binary, name}
	p := startCommand(t, cmd)
	p.wantExit(0)
	await.True(t, patience, "acquire has ended", func() bool { return strings.HasSuffix(p.stderr.String(), "125\n") })
	run(t, "run", "-n", name, "true").want(t, 0, "")
}

func TestStatus(t *testing.T) {
	name := lockName(t)
	run(t, "status", name).want(t, 0, name+": free\n")
	p := start(t, "run", "--owner", "me", name, "sh", "-c", `echo "$REDLOCK_FENCE"; exec sleep 1000`)
	token := number(t, p.line())
	if r := run(t, "status", "-v", name); r.code != 0 || !strings.Contains(r.stdout, `held by "me", token `) || strings.Count(r.stdout, "\n") != 6 {
		t.Error(r)
	}
	st := decode[statusLine](t, run(t, "status", "--json", name).stdout)
	if st.Name != name || !st.Held || st.Foreign || st.Broken || st.Owner != "me" || int(st.Token) != token || st.RemainingMS < 1 || len(st.Nodes) != 5 {
		t.Errorf("%+v", st)
	}
	p.signal(syscall.SIGTERM)
	p.wantExit(143)

	handle := strings.TrimSpace(run(t, "acquire", name).stdout)
	if r := run(t, "break", "--json", name); r.code != 0 || !decode[breakLine](t, r.stdout).Held {
		t.Error(r)
	}
	if st := decode[statusLine](t, run(t, "status", "--json", name).stdout); !st.Broken {
		t.Errorf("%+v", st)
	}
	run(t, "extend", handle).want(t, 79, "")

	r := run(t, "status", "--json")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if r.code != 0 || len(lines) != 5 {
		t.Fatal(r)
	}
	for _, line := range lines {
		if n := decode[nodeLine](t, line); n.Standing != "ok" || n.RunID == "" || n.Version == "" || n.Node == "" || n.Error != "" {
			t.Errorf("%+v", n)
		}
	}
}

// init declares blank nodes, leaves its own alone, and says of others what they
// are; status without a name changes nothing.
func TestInit(t *testing.T) {
	var urls []string
	for _, s := range redisserver.StartN(t, 3) {
		urls = append(urls, s.URL())
	}
	list := "--nodes=" + strings.Join(urls, ",")
	for range 2 {
		if r := run(t, "status", list); r.code != 69 || strings.Count(r.stdout, " new: declare it with redlock init\n") != 3 ||
			!strings.Contains(r.stderr, "0 of 3 nodes vote, 2 are needed") { // in the words of doctor
			t.Fatal(r)
		}
	}
	if r := run(t, "init", list); r.code != 0 || strings.Count(r.stdout, " declared\n") != 3 {
		t.Fatal(r)
	}
	if r := run(t, "init", "--json", list); r.code != 0 || decode[nodeLine](t, strings.SplitAfter(r.stdout, "\n")[0]).Standing != "ok" {
		t.Fatal(r)
	}
	for _, args := range [][]string{{"init", "--max-ttl", "20"}, {"status", "--max-ttl", "20"}, {"run", "--max-ttl", "20", "n", "true"}} {
		r := run(t, append([]string{list}, args...)...)
		if r.code != 78 || !strings.Contains(r.stdout+r.stderr, "MaxTTL") && !strings.Contains(r.stdout+r.stderr, "max") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestInitSaysDeclaredInJSON(t *testing.T) {
	list := "--nodes=" + ownServers(t, 1)[0]
	if n := decode[nodeLine](t, run(t, "status", "--json", list).stdout); n.Standing != "new" {
		t.Errorf("%+v", n)
	}
	if n := decode[nodeLine](t, run(t, "init", "--json", list).stdout); n.Standing != "declared" {
		t.Errorf("%+v", n)
	}
}

func TestBreakSaysWhoWasBroken(t *testing.T) {
	name := lockName(t)
	run(t, "break", name).want(t, 0, name+": free, nothing to break\n")
	r := run(t, "break", "--now", name)
	r.want(t, 0, name+": free, nothing to break\n")
	if r.stderr != "" {
		t.Errorf("a warning about a holder that is not there: %s", r.stderr)
	}
	if got := decode[breakLine](t, run(t, "break", "--json", name).stdout); got != (breakLine{Name: name}) {
		t.Errorf("%+v", got)
	}
	run(t, "acquire", "--owner", "me", name)
	if got := decode[breakLine](t, run(t, "break", "--json", name).stdout); got != (breakLine{name, true, "me"}) {
		t.Errorf("%+v", got)
	}
	run(t, "break", name).want(t, 0, name+": broken, was held by \"me\"; free when its time is over, at the latest\n")
	r = run(t, "break", "--now", name)
	r.want(t, 0, name+": broken, was held by \"me\"\n")
	if !strings.Contains(r.stderr, "may still act") {
		t.Errorf("no warning: %s", r.stderr)
	}
	run(t, "status", name).want(t, 0, name+": free\n")
}

// A key on too few nodes is no lock, but keeps others waiting.
func TestBreakFreesWhatTooFewNodesKeep(t *testing.T) {
	name := lockName(t)
	run(t, "acquire", name)
	for _, url := range nodes[:3] {
		redisDo(t, url, "DEL", "redlock:{"+name+"}")
	}
	r := run(t, "break", "--now", name)
	r.want(t, 0, name+": free, remains on some nodes broken\n")
	if r.stderr != "" || heldOn(t, nodes, name) != 0 {
		t.Errorf("still on %d nodes: %s", heldOn(t, nodes, name), r.stderr)
	}
}

// A handle is good for giving back also a lock that was broken: it would keep
// others out for the rest of its TTL.
func TestReleaseOfABrokenLock(t *testing.T) {
	name := lockName(t)
	handle := strings.TrimSpace(run(t, "acquire", name).stdout)
	run(t, "break", name)
	run(t, "run", "-n", name, "true").want(t, 75, "")
	r := run(t, "release", "--json", handle)
	if r.code != 0 || decode[releaseLine](t, r.stdout).Name != name {
		t.Error(r)
	}
	run(t, "run", "-n", name, "true").want(t, 0, "")
	r = run(t, "release", handle)
	r.want(t, 79, "")
	const spent = ": the handle has been used, or the lock was broken or its time is over\n"
	if want := "redlock: release " + name + ": lease lost" + spent; r.stderr != want {
		t.Errorf("%q, want %q", r.stderr, want)
	}
	run(t, "release", "--ttl", "5", handle).want(t, 64, "")
}

// Nodes with another configuration keep locks elsewhere: what they do not have
// may well be held.
func TestMismatchIsNoAnswer(t *testing.T) {
	name := lockName(t)
	handle := strings.TrimSpace(run(t, "acquire", name).stdout)
	for _, args := range [][]string{
		{"status", name}, {"break", name}, {"break", "--now", name}, {"init"}, {"acquire", "-n", name}, {"run", "-n", name, "true"},
	} {
		asksAll := !slices.Contains(args, "-n") // to take a lock, one node that differs is enough to stop
		r := run(t, append([]string{"--max-ttl=31"}, args...)...)
		if r.code != 78 || strings.Contains(r.stdout, "free") || strings.Contains(r.stdout, "nothing to break") {
			t.Errorf("%q: %+v", args, r)
		}
		if strings.Count(r.stderr, "\n") != 1 || strings.Count(r.stderr, "31000 here, 30000 on the node") != 1 ||
			strings.Count(r.stderr, "redlock: ") != 1 || asksAll && !strings.Contains(r.stderr, "all 5 nodes: ") {
			t.Errorf("%q: not the reason, once: %s", args, r.stderr)
		}
		r = run(t, append([]string{"--json", "--max-ttl=31"}, args...)...)
		lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
		if last := lines[len(lines)-1]; asksAll && strings.Count(last, "30000 on the node") != 5 {
			t.Errorf("%q: JSON leaves something out: %s", args, last)
		}
	}
	run(t, "release", "--plain-keys", handle).want(t, 78, "")
	run(t, "release", handle).want(t, 0, "")
}

func TestUp(t *testing.T) {
	for _, engine := range []string{"redis", "embedded", "auto"} {
		t.Run(engine, func(t *testing.T) {
			p := startEnv(t, []string{"REDLOCK_NODES="}, "up", "--nodes", "3", "--port", freePorts(t), "--engine", engine)
			line := p.line()
			list, ok := strings.CutPrefix(line, "REDLOCK_NODES=")
			if !ok || strings.Count(list, ",") != 2 {
				t.Fatal(line)
			}
			// As the shell takes it.
			out, err := exec.Command("sh", "-c", "export "+line+`; printf %s "$REDLOCK_NODES"`).Output()
			if err != nil || string(out) != list {
				t.Errorf("%q, %v", out, err)
			}
			if r := runEnv(t, []string{line}, "status"); r.code != 0 || strings.Count(r.stdout, " ok\n") != 3 {
				t.Error("not initialised:", r)
			}
			runEnv(t, []string{line}, "run", "n", "echo", "ran").want(t, 0, "ran\n")
			p.signal(map[bool]syscall.Signal{true: syscall.SIGTERM, false: syscall.SIGINT}[engine == "embedded"])
			p.wantExit(0)
			if rest := p.rest(); rest != "" {
				t.Errorf("more on stdout: %q", rest)
			}
			runEnv(t, []string{line}, "run", "--connect-wait", "0.2", "n", "true").want(t, 69, "")
		})
	}
}

// A node that ends before it is told to is reported, and the others go on until they
// are told to, or are gone, too.
func TestUpSaysThatANodeEnded(t *testing.T) {
	for _, last := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%v", last), func(t *testing.T) {
			p := startEnv(t, []string{"REDLOCK_NODES="}, "up", "--nodes", "3", "--port", freePorts(t), "--engine", "redis")
			line := p.line()
			urls := strings.Split(strings.TrimPrefix(line, "REDLOCK_NODES="), ",")
			ends := func(i int) {
				t.Helper()
				addr := strings.TrimPrefix(urls[i], "redis://")
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := io.WriteString(conn, "SHUTDOWN NOSAVE\r\n"); err != nil {
					t.Fatal(err)
				}
				said := fmt.Sprintf("redlock: node ended (node=%s pid=", addr)
				await.True(t, patience, "it says "+said, func() bool { return strings.Contains(p.stderr.String(), said) })
			}
			ends(1)
			if said := p.stderr.String(); !strings.Contains(said, `how="exit status 0"`) {
				t.Errorf("not said how: %s", said)
			}
			runEnv(t, []string{line}, "run", "n", "echo", "ran").want(t, 0, "ran\n")
			if last {
				ends(0)
				ends(2)
			} else {
				p.signal(syscall.SIGTERM)
			}
			p.wantExit(exitInternal)
			want := map[bool]string{false: "1 of 3 nodes ended by themselves: ", true: "3 of 3 nodes ended by themselves: "}[last]
			if said := p.stderr.String(); !strings.Contains(lastLine(said), want) || strings.Count(said, "node ended") != map[bool]int{false: 1, true: 3}[last] {
				t.Errorf("want %s: %s", want, said)
			}
		})
	}
}

// A port that is taken is an error, and leaves no server behind.
func TestUpOnATakenPort(t *testing.T) {
	taken := strings.TrimPrefix(nodes[0], "redis://127.0.0.1:")
	for _, engine := range []string{"redis", "embedded"} {
		r := run(t, "up", "--nodes", "1", "--port", taken, "--engine", engine)
		if r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, taken) || !strings.Contains(r.stderr, "--port") {
			t.Errorf("%s: %+v", engine, r)
		}
	}
}

func TestCompletionAndVersion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := run(t, "completion", shell); r.code != 0 || !strings.Contains(r.stdout, "redlock") {
			t.Errorf("%s: %+v", shell, r)
		}
	}
	flag, cmd := run(t, "--version"), run(t, "version")
	if flag.code != 0 || flag.stdout != cmd.stdout || !strings.HasPrefix(flag.stdout, "redlock ") {
		t.Error(flag, cmd)
	}
	if v := decode[versionLine](t, run(t, "version", "--json").stdout); v.Version == "" || v.Go == "" {
		t.Errorf("%+v", v)
	}
}

// freePorts returns the first of three ports that were free a moment ago.
func freePorts(t *testing.T) string {
	t.Helper()
	const lowest, highest = 10000, 19990 // no system takes these for outgoing connections
	for {
		first := lowest + rand.IntN(highest-lowest)
		free := 0
		for port := first; port < first+3; port++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				l.Close()
				free++
			}
		}
		if free == 3 {
			return strconv.Itoa(first)
		}
	}
}
