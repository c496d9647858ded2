//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/faultproxy"
	"example.com/redlock/testkit/redisserver"
)

// partition is three servers, and a way to them that can be cut for one client.
type partition struct {
	t       *testing.T
	direct  []string
	proxies []*faultproxy.Proxy
}

func newPartition(t *testing.T) *partition {
	t.Helper()
	p := &partition{t: t}
	for _, s := range redisserver.StartN(t, 3) {
		proxy, err := faultproxy.Start(s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proxy.Close() })
		p.direct = append(p.direct, s.URL())
		p.proxies = append(p.proxies, proxy)
	}
	if r := run(t, p.rival("init")...); r.code != 0 {
		t.Fatal(r)
	}
	return p
}

// The two ways lead to the same nodes, which is what --cluster is for.

func (p *partition) victim(args ...string) []string {
	var urls []string
	for _, proxy := range p.proxies {
		urls = append(urls, proxy.URL())
	}
	return append([]string{"--cluster", "c", "--nodes", strings.Join(urls, ",")}, args...)
}

func (p *partition) rival(args ...string) []string {
	return append([]string{"--cluster", "c", "--nodes", strings.Join(p.direct, ",")}, args...)
}

// cut makes n of the nodes silent for the victim, or all audible again.
func (p *partition) cut(n int) {
	for i, proxy := range p.proxies {
		mode := faultproxy.Pass
		if i < n {
			mode = faultproxy.Swallow
		}
		proxy.SetMode(faultproxy.ToServer, mode)
		proxy.SetMode(faultproxy.ToClient, mode)
	}
}

// beats is what the beat helper has written.
type beats struct {
	last, term time.Time
}

func readBeats(t *testing.T, path string) (b beats) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var kind string
		var ns int64
		if n, _ := fmt.Sscan(s.Text(), &kind, &ns); n != 2 {
			continue // killed while writing
		}
		if b.last = time.Unix(0, ns); kind == "term" {
			b.term = b.last
		}
	}
	return b
}

// B123: cut off from a majority, the command gets TERM at V - grace, and by V
// nothing of its group lives, also if it ignores TERM; exit 79.
func TestB123PartitionStopsTheCommandInTime(t *testing.T) {
	net := newPartition(t)
	file := filepath.Join(t.TempDir(), "beats")
	const ttl, grace = 3 * time.Second, 500 * time.Millisecond
	p := startEnv(t, []string{helperEnv + "=beat", "CLI_TEST_FILE=" + file},
		net.victim("run", "--json", "--ttl", "3", "--grace", "0.5", "n", os.Args[0])...)
	child := number(t, p.line())
	rival := startCommand(t, command(t, nil, net.rival("run", "n", "date", "+%s%N")...))
	await.True(t, patience, "the rival waits", func() bool { return strings.Contains(rival.stderr.String(), "waiting") })

	cutAt := time.Now()
	net.cut(2)
	p.wantExit(79)
	if alive(child) {
		t.Error("the command survived")
	}
	rival.wantExit(0)
	var took int64
	fmt.Sscan(rival.rest(), &took)

	stopping, ok := p.event("stopping")
	if !ok {
		t.Fatal("no event")
	}
	end := stopping.Time.Add(time.Duration(stopping.RemainingMS) * time.Millisecond) // V
	b := readBeats(t, file)
	switch {
	case b.term.IsZero():
		t.Error("no TERM")
	case b.term.Before(end.Add(-grace - 50*time.Millisecond)):
		t.Errorf("TERM %v before the end of the validity, with a grace of %v", end.Sub(b.term), grace)
	case !b.last.Before(end):
		t.Errorf("it lived for %v after the end of the validity", b.last.Sub(end))
	case b.last.Before(end.Add(-killMargin(grace) - 50*time.Millisecond)):
		t.Errorf("KILL came %v before the end of the validity", end.Sub(b.last))
	case !b.last.Before(time.Unix(0, took)):
		t.Error("it lived when the rival had the lock")
	case b.term.Before(cutAt.Add(ttl / 3)):
		t.Error("TERM came although there was time for another renewal")
	}
	if _, killed := p.event("killed"); !killed {
		t.Error("no event about KILL")
	}
	t.Logf("cut at 0, TERM at %v, last sign at %v, V at %v, rival at %v", b.term.Sub(cutAt), b.last.Sub(cutAt), end.Sub(cutAt), time.Unix(0, took).Sub(cutAt))
}

// B123, the other half: what a lease rides out must not disturb the command.
func TestB123BriefOutagesDoNotDisturb(t *testing.T) {
	net := newPartition(t)
	file := filepath.Join(t.TempDir(), "end")
	p := startEnv(t, []string{helperEnv + "=until", "CLI_TEST_FILE=" + file},
		net.victim("run", "--json", "--ttl", "6", "n", os.Args[0])...)
	p.line()
	said := func(what string) int { return strings.Count(p.stderr.String(), `"event":"`+what+`"`) }
	const down, up = "node does not answer", "node answers again"
	for _, silent := range []int{1, 3} { // a minority, for as long as it likes; then all, for as long as it takes to notice
		wasDown, wasUp := said(down), said(up)
		net.cut(silent)
		await.True(t, patience, "it notices", func() bool { return said(down) >= wasDown+silent })
		net.cut(0)
		await.True(t, patience, "it recovers", func() bool { return said(up) >= wasUp+silent })
	}
	touch(t, file)
	p.wantExit(5)
	if e, bad := p.event("stopping"); bad {
		t.Errorf("%+v", e)
	}
}

// B120: what the command has started goes as well. A lease that is broken leaves
// time for TERM, and a group that heeds it is spared KILL; one that is broken at
// once leaves time for KILL only.
func TestB120GrandchildrenAreKilledOnLoss(t *testing.T) {
	const heeding = "sleep 1000 & echo $!; wait"
	for _, c := range []struct {
		name, script string
		flags        []string
		killed       bool
	}{
		{"heeding TERM", heeding, nil, false},
		{"ignoring TERM", "(trap '' TERM; while :; do sleep 0.01; done) & echo $!; wait", nil, true},
		{"orphaned", "(trap '' TERM; while :; do sleep 0.01; done) & echo $!; trap 'exit 0' TERM; while :; do sleep 0.01; done", nil, true},
		{"without TERM", heeding, []string{"--now"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			lock := lockName(t)
			p := start(t, "run", "--json", "--ttl", "1.5", "--grace", "0.5", lock, "sh", "-c", c.script)
			grandchild := number(t, p.line())
			if r := run(t, append([]string{"break", lock}, c.flags...)...); r.code != 0 {
				t.Fatal(r)
			}
			p.wantExit(79)
			if alive(grandchild) {
				t.Error("it survived")
			}
			if _, killed := p.event("killed"); killed != c.killed {
				t.Errorf("killed: %v, want %v", killed, c.killed)
			}
		})
	}
}

// On a normal end what the command has left in the background is left alone,
// as flock(1) does.
func TestBackgroundProcessesOutliveANormalEnd(t *testing.T) {
	p := start(t, "run", lockName(t), "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
	pid := number(t, p.line())
	p.wantExit(0)
	if !alive(pid) {
		t.Error("killed")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func TestBreakStopsTheCommand(t *testing.T) {
	lock := lockName(t)
	p := start(t, "run", "--json", "--ttl", "1.5", lock, "sh", "-c", "echo; trap 'echo told; exit 0' TERM; while :; do sleep 0.01; done")
	p.line()
	if r := run(t, "break", lock); r.code != 0 {
		t.Fatal(r)
	}
	if got := p.line(); got != "told" {
		t.Error(got)
	}
	p.wantExit(79) // whatever the command returned
	if _, killed := p.event("killed"); killed {
		t.Error("killed, although it had ended at TERM")
	}
	run(t, "run", "-w", "5", lock, "true").want(t, 0, "")
}

func TestMaxHold(t *testing.T) {
	lock := lockName(t)
	begin := time.Now()
	p := start(t, "run", "--ttl", "3", "--max-hold", "0.7", lock, "sh", "-c", "trap '' TERM; while :; do sleep 0.01; done")
	p.wantExit(124)
	// TERM at 0.7 s, KILL after a sixth of the TTL.
	if took := time.Since(begin); took < 1100*time.Millisecond || took > 4*time.Second {
		t.Errorf("took %v", took)
	}
	run(t, "run", "-n", lock, "true").want(t, 0, "")
}

// A redlock that slept past the end of its lease kills at once.
func TestWrapperStoppedPastItsLease(t *testing.T) {
	lock := lockName(t)
	p := start(t, "run", "--json", "--ttl", "0.6", lock, "sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.01; done")
	child := number(t, p.line())
	p.signal(syscall.SIGSTOP)
	run(t, "run", lock, "true").want(t, 0, "")
	p.signal(syscall.SIGCONT)
	p.wantExit(79)
	if alive(child) {
		t.Error("the command survived")
	}
	if e, _ := p.event("stopping"); e.GraceMS != 0 || e.RemainingMS != 0 {
		t.Errorf("a grace of %d ms, and %d ms left, without a lease", e.GraceMS, e.RemainingMS)
	}
}

// The lease ended while the command ended: what was released was not ours any
// more, so somebody else may have held the name while the command ran.
func TestBrokenAtOnceAndUnnoticed(t *testing.T) {
	lock := lockName(t)
	p := start(t, "run", lock, "sh", "-c", fmt.Sprintf("%s break --now '%s' >&2; exit 0", binary, lock))
	p.wantExit(79)
}
