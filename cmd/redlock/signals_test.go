//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
)

// B119: each signal reaches the command and what it has started; redlock waits
// for it, gives the lock back and leaves with 128+n. Nobody survives.
func TestB119SignalsAreForwarded(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		t.Run(sig.String(), func(t *testing.T) {
			name := lockName(t)
			// The shell is without job control: what it starts is in its group.
			p := start(t, "run", name, "sh", "-c", "sleep 1000 & sleep 1000 & echo $! $$; wait; wait")
			var inner, outer int
			fmt.Sscan(p.line(), &inner, &outer)
			p.signal(sig)
			p.wantExit(128 + int(sig))
			if alive(outer) {
				t.Error("the command survived")
			}
			// INT and QUIT are ignored in what a shell starts in the background;
			// a command that wants them to end has to see to it.
			if sig != syscall.SIGINT && sig != syscall.SIGQUIT {
				await.True(t, patience, "end of the command's own child", func() bool { return !alive(inner) })
			} else if alive(inner) {
				_ = syscall.Kill(inner, syscall.SIGKILL)
			}
			if n := heldOn(t, nodes, name); n > 2 {
				t.Errorf("%d nodes still have the lock", n)
			}
		})
	}
}

// A command that handles a signal decides itself, also about its code.
func TestSignalsHandledByTheCommand(t *testing.T) {
	for _, sig := range []string{"INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"} {
		t.Run(sig, func(t *testing.T) {
			p := start(t, "run", lockName(t), "sh", "-c",
				fmt.Sprintf(`trap 'echo got; exit 9' %s; echo; while :; do sleep 0.01; done`, sig))
			p.line()
			if out, err := exec.Command("kill", "-"+sig, fmt.Sprint(p.cmd.Process.Pid)).CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			if got := p.line(); got != "got" {
				t.Errorf("%q", got)
			}
			p.wantExit(9)
		})
	}
}

// A signal that is ignored where redlock is started stays so, as nohup(1) wants.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	cmd := command(t, nil)
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", fmt.Sprintf(`trap '' HUP; exec %s run "$0" sh -c 'kill -HUP $$; echo alive; read x'`, binary), lockName(t)}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, cmd)
	if got := p.line(); got != "alive" {
		t.Fatal(got)
	}
	p.signal(syscall.SIGHUP)
	fmt.Fprintln(stdin, "done")
	p.wantExit(0)
}

// A signal ends the wait for a lock; nothing stays behind.
func TestSignalWhileWaiting(t *testing.T) {
	name := lockName(t)
	holder := start(t, "run", name, "sh", "-c", "echo; exec sleep 1000")
	holder.line()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		waiter := start(t, "run", "-v", name, "echo", "must not run")
		await.True(t, patience, "the waiter waits", func() bool { return strings.Contains(waiter.stderr.String(), "waiting") })
		waiter.signal(sig)
		waiter.wantExit(128 + int(sig))
		if out := waiter.rest(); out != "" {
			t.Errorf("%v: it ran: %q", sig, out)
		}
	}
	holder.signal(syscall.SIGTERM)
	holder.wantExit(143)
	// Had a waiter left a key, this would have to wait for its TTL.
	run(t, "run", "-n", name, "true").want(t, 0, "")
	if n := heldOn(t, nodes, name); n != 0 {
		t.Errorf("%d nodes have the lock", n)
	}
}

// A signal while no node answers ends the wait as well.
func TestSignalWhileNoQuorum(t *testing.T) {
	p := start(t, "run", "--nodes", "redis://127.0.0.1:1", "--connect-wait", "1000", "n", "true")
	await.True(t, patience, "it waits", func() bool { return strings.Contains(p.stderr.String(), "waiting") })
	p.signal(syscall.SIGTERM)
	p.wantExit(143)
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The commands of these tests fork nothing: a shell that is stopped while it
// waits in vfork(2) is not seen to stop, by any parent.

// TSTP stops the command and then redlock, which on CONT lets it go on.
func TestStopAndContinue(t *testing.T) {
	for _, target := range []string{"redlock", "command"} {
		t.Run(target, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "go on")
			p := startEnv(t, []string{helperEnv + "=until", "CLI_TEST_FILE=" + file}, "run", lockName(t), os.Args[0])
			child := number(t, p.line())
			if target == "redlock" {
				p.signal(syscall.SIGTSTP)
			} else if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			await.True(t, patience, "both have stopped", func() bool { return stopped(child) && stopped(p.cmd.Process.Pid) })
			p.signal(syscall.SIGCONT)
			await.True(t, patience, "both go on", func() bool { return !stopped(child) && !stopped(p.cmd.Process.Pid) })
			touch(t, file)
			p.wantExit(5)
		})
	}
}

// A lease that did not outlast the stop: the command is not let go on.
func TestContinueAfterTheLeaseHasEnded(t *testing.T) {
	name := lockName(t)
	p := start(t, "run", "--json", "--ttl", "0.6", name, "sh", "-c", "echo $$; exec sleep 1000")
	child := number(t, p.line())
	p.signal(syscall.SIGTSTP)
	await.True(t, patience, "both have stopped", func() bool { return stopped(child) && stopped(p.cmd.Process.Pid) })
	// Somebody else gets the lock meanwhile, and that is how we know it is over.
	run(t, "run", name, "true").want(t, 0, "")
	before := time.Now()
	p.signal(syscall.SIGCONT)
	p.wantExit(79)
	if alive(child) {
		t.Error("the command survived")
	}
	if _, termed := p.event("killed"); !termed {
		t.Error("a command without a lease must be killed at once")
	}
	if took := time.Since(before); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

// While redlock is stopped its lease may be broken; on CONT it asks first.
func TestContinueAfterABreak(t *testing.T) {
	name := lockName(t)
	p := start(t, "run", name, "sh", "-c", "echo $$; exec sleep 1000")
	child := number(t, p.line())
	p.signal(syscall.SIGTSTP)
	await.True(t, patience, "both have stopped", func() bool { return stopped(child) && stopped(p.cmd.Process.Pid) })
	if r := run(t, "break", "--now", name); r.code != 0 {
		t.Fatal(r)
	}
	p.signal(syscall.SIGCONT)
	p.wantExit(79)
}

// B118: redlock ends with its command, and a terminal or a reader that goes
// away does not leave a lock behind that somebody renews for ever.
func TestB118NobodyRenewsForTheDead(t *testing.T) {
	name := lockName(t)
	cmd := command(t, nil, "run", name, "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, cmd)
	await.True(t, patience, "the lock is held", func() bool { return heldOn(t, nodes, name) >= 3 })
	stdin.Close() // EOF is the command's to notice
	p.wantExit(0)
	await.True(t, patience, "the lock is gone", func() bool { return heldOn(t, nodes, name) == 0 })

	// A reader of our stderr that is gone does not take redlock along.
	q := command(t, nil)
	q.Path = "/bin/sh"
	q.Args = []string{"sh", "-c", fmt.Sprintf(`{ { %s run -v "$0" sh -c 'sleep 0.2; exit 4'; echo $? >&3; } 2>&1 >/dev/null | true; } 3>&1`, binary), name}
	p = startCommand(t, q)
	if got := p.line(); got != "4" {
		t.Errorf("exit %s", got)
	}
}

// B125: an orderly stop leaves no lock for its TTL.
func TestB125StopFreesAtOnce(t *testing.T) {
	const holders = 10
	name := lockName(t)
	var ps []*process
	for i := range holders {
		ps = append(ps, start(t, "run", fmt.Sprintf("%s/%d", name, i), "sh", "-c", "echo; exec sleep 1000"))
	}
	for _, p := range ps {
		p.line()
	}
	begin := time.Now()
	for _, p := range ps {
		p.signal(syscall.SIGTERM)
	}
	for i, p := range ps {
		p.wantExit(143)
		// A node that was too busy to answer in time may still be carrying it out.
		await.True(t, time.Second, "no node has the lock", func() bool { return heldOn(t, nodes, fmt.Sprintf("%s/%d", name, i)) == 0 })
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("%v for %d holders", took, holders)
	}
}
