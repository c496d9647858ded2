//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// child is a running command, the leader of a process group of its own.
type child struct {
	pid int
	// changes tells when the command stops and, last, how it ended.
	changes chan unix.WaitStatus
}

// findCommand returns the path of a command as execvp(3) would find it.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // PATH has the current directory: the user's choice
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: %s", errNotFound, name)
	}
	return "", fmt.Errorf("%w: %w", errCannotRun, err)
}

// startChild starts the command with our own standard streams, its process
// group in the foreground of the terminal if tty says so.
func startChild(path string, argv, env []string, tty *terminal) (*child, error) {
	attr := &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   sysProcAttr(),
	}
	attr.Sys.Setpgid = true
	if tty.lendAtStart() {
		attr.Sys.Foreground = true
		attr.Sys.Ctty = tty.fd
	}
	c := &child{changes: make(chan unix.WaitStatus)}
	started := make(chan error)
	go func() {
		// On Linux the death signal comes when the thread that forked ends, so
		// the thread must not go back to the runtime while the command lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p, err := os.StartProcess(path, argv, attr)
		if err != nil {
			started <- startError(argv[0], err)
			return
		}
		c.pid = p.Pid
		_ = p.Release() // reap waits, for this and for orphans
		started <- nil
		c.reap()
	}()
	return c, <-started
}

func startError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) { // the command, or the interpreter in its first line
		return fmt.Errorf("%w: %s: %w", errNotFound, name, err)
	}
	return fmt.Errorf("%w: %s: %w", errCannotRun, name, err)
}

// reap waits for all children: the command, and what of its offspring falls to
// us, as process 1 of a container or as a subreaper. A process that nobody
// waits for would count as one of the group for ever.
func (c *child) reap() {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return
		case pid == c.pid:
			c.changes <- ws
		}
	}
}

// signal sends sig to the whole group, and to the command if it has left it.
func (c *child) signal(sig unix.Signal) {
	_ = unix.Kill(-c.pid, sig) // fails if the group is gone
	if pgid, err := unix.Getpgid(c.pid); err == nil && pgid != c.pid {
		_ = unix.Kill(c.pid, sig)
	}
}

// groupGone tells whether neither the command nor a process of its group is
// left. It counts a command that has ended but was not yet waited for.
func (c *child) groupGone() bool {
	return unix.Kill(-c.pid, 0) == unix.ESRCH && unix.Kill(c.pid, 0) == unix.ESRCH
}

// awaitGone waits until no process of the group is left, or for the duration d.
func (c *child) awaitGone(d time.Duration) bool {
	const look = 5 * time.Millisecond
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	for !c.groupGone() {
		select {
		case <-c.changes:
		case <-ticker.C:
		case <-timeout.C:
			return c.groupGone()
		}
	}
	return true
}

// exitError turns the end of the command into our own.
func exitError(ws unix.WaitStatus) error {
	switch {
	case ws.Signaled():
		return coded{code: exitSignal + int(ws.Signal())}
	case ws.ExitStatus() != 0:
		return coded{code: ws.ExitStatus()}
	}
	return nil
}
