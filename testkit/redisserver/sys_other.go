//go:build !unix

package redisserver

import "syscall"

// There are no such signals here: sending any but Kill is an error, so that
// Freeze and Thaw report one and Stop kills.
const (
	sigFreeze    = syscall.Signal(0x13)
	sigThaw      = syscall.Signal(0x12)
	sigTerminate = syscall.SIGTERM
)

func sysProcAttr() *syscall.SysProcAttr { return nil }
