//go:build unix

package redisserver

import "syscall"

const (
	sigFreeze    = syscall.SIGSTOP
	sigThaw      = syscall.SIGCONT
	sigTerminate = syscall.SIGTERM
)
