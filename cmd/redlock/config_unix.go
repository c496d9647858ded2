//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// distrustFile says why a configuration file is not to be trusted, or "".
func distrustFile(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return "of unknown ownership"
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return "owned by neither you nor root"
	case info.Mode().Perm()&0o022 != 0:
		return "writable by others (chmod go-w)"
	}
	return ""
}
