//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// console is a program on a pseudo-terminal, and what it has shown.
type console struct {
	t    *testing.T
	cmd  *exec.Cmd
	pty  *os.File
	seen buffer
	from int // where expect goes on
	done chan struct{}
}

func newConsole(t *testing.T, cmd *exec.Cmd) *console {
	t.Helper()
	cmd.Env = append(cmd.Env, "TERM=dumb", "PS1=ready> ")
	blocking, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	// One that can be closed while it is being read: a hangup.
	fd, err := unix.Dup(int(blocking.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	blocking.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "pty")
	c := &console{t: t, cmd: cmd, pty: file, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		b := make([]byte, 4096)
		for {
			n, err := file.Read(b)
			_, _ = c.seen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		file.Close()
		<-c.done
		if t.Failed() {
			t.Logf("the terminal showed:\n%s", c.seen.String())
		}
	})
	return c
}

// newShell returns an interactive shell with job control, where $R is redlock.
func newShell(t *testing.T) *console {
	t.Helper()
	cmd := command(t, []string{"R=" + binary})
	cmd.Path = "/bin/bash"
	cmd.Args = []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}
	c := newConsole(t, cmd)
	c.expect("ready> ")
	return c
}

func (c *console) send(s string) {
	c.t.Helper()
	if _, err := c.pty.WriteString(s); err != nil {
		c.t.Fatal(err)
	}
}

// expect waits until the terminal has shown s, after what was expected before.
func (c *console) expect(s string) {
	c.t.Helper()
	await.True(c.t, patience, fmt.Sprintf("the terminal shows %q", s), func() bool {
		at := strings.Index(c.seen.String()[c.from:], s)
		if at < 0 {
			return false
		}
		c.from += at + len(s)
		return true
	})
}

// promptUntil makes the shell prompt until it says s: it tells what became of a
// job only then.
func (c *console) promptUntil(s string) {
	c.t.Helper()
	await.True(c.t, patience, fmt.Sprintf("the shell says %q", s), func() bool {
		before := c.from
		c.send("echo prompt$((1))\n")
		c.expect("prompt1\r\n")
		return strings.Contains(c.seen.String()[before:c.from], s)
	})
}

// foreground returns the process group that has the terminal.
func (c *console) foreground() int {
	conn, err := c.pty.SyscallConn() // Fd would make it blocking
	if err != nil {
		c.t.Fatal(err)
	}
	pgrp := -1
	if controlErr := conn.Control(func(fd uintptr) { pgrp, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) }); controlErr != nil || err != nil {
		c.t.Fatal(controlErr, err)
	}
	return pgrp
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

// echoed is a command that says its process id and then reads lines; what it
// says is not what the terminal echoes.
const echoed = `sh -c 'echo "pid<$$>"; while read x; do echo "[$x]"; done; exit 3'`

var saidPID = regexp.MustCompile(`pid<(\d+)>`)

// pid reads what echoed says.
func (c *console) pid() (pid int) {
	c.t.Helper()
	await.True(c.t, patience, "the command says its process id", func() bool {
		shown := c.seen.String()
		m := saidPID.FindStringSubmatchIndex(shown[c.from:])
		if m != nil {
			pid = number(c.t, shown[c.from+m[2]:c.from+m[3]])
			c.from += m[1]
		}
		return m != nil
	})
	return pid
}

func TestTerminalBelongsToTheCommand(t *testing.T) {
	sh := newShell(t)
	sh.send(`"$R" run n ` + echoed + "\n")
	pid := sh.pid()
	if fg := sh.foreground(); fg != pid {
		t.Errorf("group %d is in the foreground, not the command's %d", fg, pid)
	}
	sh.send("hello\n")
	sh.expect("[hello]")
	sh.send(ctrlD)
	sh.expect("ready> ")
	sh.send("echo code=$?\n")
	sh.expect("code=3\r\n")

	sh.send(`"$R" run n sh -c 'echo in; exec sleep 1000'` + "\n")
	sh.expect("in\r\n")
	sh.send(ctrlC)
	sh.expect("ready> ")
	sh.send("echo code=$?\n")
	sh.expect("code=130\r\n")
}

func TestTerminalJobControl(t *testing.T) {
	sh := newShell(t)
	sh.send(`"$R" run n ` + echoed + "\n")
	pid := sh.pid()
	sh.send(ctrlZ)
	sh.expect("Stopped")
	sh.expect("ready> ")
	await.True(t, patience, "the command has stopped", func() bool { return stopped(pid) })
	sh.send("fg\n")
	await.True(t, patience, "the command has the terminal again", func() bool { return sh.foreground() == pid && !stopped(pid) })
	sh.send("again\n")
	sh.expect("[again]")

	// In the background it goes on until it wants to read.
	sh.send(ctrlZ)
	sh.expect("Stopped")
	sh.send("bg\n")
	sh.expect("ready> ")
	sh.promptUntil("Stopped")
	sh.send("fg\n")
	await.True(t, patience, "the command has the terminal again", func() bool { return sh.foreground() == pid && !stopped(pid) })
	sh.send("more\n")
	sh.expect("[more]")
	sh.send(ctrlD)
	sh.expect("ready> ")
	sh.send("echo code=$?\n")
	sh.expect("code=3\r\n")
}

func TestTerminalStartedInTheBackground(t *testing.T) {
	sh := newShell(t)
	shell := sh.foreground()
	sh.send(`"$R" run n ` + echoed + " &\n")
	pid := sh.pid()
	sh.promptUntil("Stopped")
	if fg := sh.foreground(); fg != shell {
		t.Errorf("group %d took the terminal from the shell %d", fg, shell)
	}
	sh.send("fg\n")
	await.True(t, patience, "the command has the terminal", func() bool { return sh.foreground() == pid && !stopped(pid) })
	sh.send("late\n")
	sh.expect("[late]")
	sh.send(ctrlD)
	sh.expect("ready> ")
}

// In a pipeline another process may need the terminal; the command gets it when
// it reads from it.
func TestTerminalInAPipeline(t *testing.T) {
	sh := newShell(t)
	sh.send(`"$R" run n sh -c 'echo "pid<$$>"; read x </dev/tty; echo "[$x]"' | cat` + "\n")
	pid := sh.pid()
	await.True(t, patience, "the command has the terminal", func() bool { return sh.foreground() == pid && !stopped(pid) })
	sh.send("piped\n")
	sh.expect("[piped]")
	sh.expect("ready> ")

	sh.send(`"$R" run n sh -c 'echo in; exec sleep 1000' | cat` + "\n")
	sh.expect("in\r\n")
	sh.send(ctrlC)
	sh.expect("ready> ")
	sh.send("echo code=${PIPESTATUS[0]}\n")
	sh.expect("code=130\r\n")
}

// ^Z stops the script around redlock as well.
func TestTerminalStopsTheWholeJob(t *testing.T) {
	sh := newShell(t)
	sh.send(`sh -c '"$R" run n ` + strings.ReplaceAll(echoed, "'", `'\''`) + `; echo after=$?'` + "\n")
	pid := sh.pid()
	sh.send(ctrlZ)
	sh.expect("Stopped")
	sh.send("fg\n")
	await.True(t, patience, "the command has the terminal again", func() bool { return sh.foreground() == pid && !stopped(pid) })
	sh.send("on\n")
	sh.expect("[on]")
	sh.send(ctrlD)
	sh.expect("after=3\r\n")
}

// Where no shell could continue a stopped job, as under ssh -t or as process 1
// of a container, ^Z does nothing, as it does without redlock.
func TestTerminalWithoutJobControl(t *testing.T) {
	c := newConsole(t, command(t, nil, "run", "n", "sh", "-c", `echo "pid<$$>"; while read x; do echo "[$x]"; done; exit 3`))
	pid := c.pid()
	c.send(ctrlZ)
	c.send("on\n")
	c.expect("[on]")
	if fg := c.foreground(); fg != pid {
		t.Errorf("group %d has the terminal, not %d", fg, pid)
	}
	c.send(ctrlC)
	_ = c.cmd.Wait()
	if code := c.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d", code)
	}
}

// B118: a terminal that goes away takes the command and the lock along.
func TestB118Hangup(t *testing.T) {
	name := lockName(t)
	c := newConsole(t, command(t, nil, "run", name, "sh", "-c", `echo "pid<$$>"; exec sleep 1000`))
	pid := c.pid()
	c.pty.Close()
	await.True(t, patience, "the command is dead", func() bool { return !alive(pid) })
	await.True(t, patience, "the lock is free", func() bool { return heldOn(t, nodes, name) == 0 })
	_ = c.cmd.Wait()
	if code := c.cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGHUP) {
		t.Errorf("exit %d", code)
	}
}

// ^C while waiting for the lock is ours.
func TestTerminalInterruptWhileWaiting(t *testing.T) {
	name := lockName(t)
	holder := start(t, "run", name, "sh", "-c", "echo; exec sleep 1000")
	holder.line()
	sh := newShell(t)
	begin := time.Now()
	sh.send(`"$R" run ` + name + " true\n")
	sh.expect("waiting")
	sh.send(ctrlC)
	sh.expect("ready> ")
	sh.send("echo code=$?\n")
	sh.expect("code=130\r\n")
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// A command that is killed with the terminal in hand leaves it to the shell.
func TestTerminalAfterALoss(t *testing.T) {
	sh := newShell(t)
	name := lockName(t)
	sh.send(`"$R" run -q --ttl 0.9 ` + name + ` sh -c 'trap "" TERM; echo "pid<$$>"; while :; do read x; done'` + "\n")
	sh.pid()
	if r := run(t, "break", "--now", name); r.code != 0 {
		t.Fatal(r)
	}
	sh.expect("ready> ")
	sh.send("echo code=$?\n")
	sh.expect("code=79\r\n")
}
