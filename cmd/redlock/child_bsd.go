//go:build unix && !linux

package main

import "golang.org/x/sys/unix"

// sysProcAttr: this system cannot tie the command's life to ours.
func sysProcAttr() *unix.SysProcAttr { return &unix.SysProcAttr{} }

func adoptOrphans() {}
