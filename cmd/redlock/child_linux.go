package main

import "golang.org/x/sys/unix"

// sysProcAttr has the kernel kill the command when we are killed, so that it
// never goes on without its lock.
func sysProcAttr() *unix.SysProcAttr {
	return &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
}

// adoptOrphans makes us the parent of processes that the command leaves
// behind, so that the end of its group can be seen also where process 1 waits
// for nobody.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // since Linux 3.4; without it we only wait longer
}
