//go:build unix

package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// foregroundColumns is how many columns the terminal w has, 0 if it is none or another
// job has it.
func foregroundColumns(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	fd := int(file.Fd())
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		return 0
	}
	const usual = 80 // for one that does not know
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return usual
	}
	return int(size.Col)
}
