//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// endSignals end a process that does not catch them.
var endSignals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}
