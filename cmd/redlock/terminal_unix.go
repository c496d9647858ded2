//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal. All methods are fine with nil, which
// stands for none.
type terminal struct {
	file *os.File
	fd   int
	job  int // our process group, which the shell above takes for the whole job
	// whole tells that the job is not part of a pipeline: both ends are on the
	// terminal, so the command may have it from the start. Otherwise another
	// process of the job may need it, a pager for instance, and the command
	// gets it only when it asks.
	whole bool
	// alone tells that no shell with job control is above: nobody could
	// continue a job that has stopped.
	alone bool
	// lent tells that the command has had the terminal.
	lent bool
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file: file, fd: int(file.Fd()), job: unix.Getpgrp()}
	_, inErr := unix.IoctlGetInt(unix.Stdin, unix.TIOCGPGRP)
	_, outErr := unix.IoctlGetInt(unix.Stdout, unix.TIOCGPGRP)
	t.whole = inErr == nil && outErr == nil
	if session, err := unix.Getsid(0); err == nil {
		leaders, err := unix.Getpgid(session)
		t.alone = err == nil && leaders == t.job
	}
	return t
}

func (t *terminal) close() {
	if t != nil {
		t.file.Close()
	}
}

// foreground tells whether the group has the terminal.
func (t *terminal) foreground(group int) bool {
	if t == nil {
		return false
	}
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && pgrp == group
}

// lendAtStart tells whether a command gets the terminal when it is started.
func (t *terminal) lendAtStart() bool {
	if t == nil || !t.whole || !t.foreground(t.job) {
		return false
	}
	t.lent = true
	return true
}

// give puts the group into the foreground, if the terminal is ours to give.
func (t *terminal) give(group int) bool {
	if t == nil || !t.foreground(t.job) || !t.set(group) {
		return false
	}
	t.lent = true
	return true
}

// takeBack puts our job back into the foreground, if group has the terminal, or
// a group that is gone: one of the command's own jobs. It tells whether it did.
func (t *terminal) takeBack(group int) bool {
	if t == nil || !t.lent {
		return false
	}
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil || pgrp == t.job {
		return false
	}
	if pgrp != group && unix.Kill(-pgrp, 0) != unix.ESRCH {
		return false
	}
	return t.set(t.job)
}

func (t *terminal) set(group int) bool {
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
}
