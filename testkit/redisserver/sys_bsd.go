//go:build unix && !linux

package redisserver

import "syscall"

// sysProcAttr cannot tie the server's life to ours: darwin has no such thing.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
