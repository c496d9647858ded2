//go:build unix

package redisserver_test

import (
	"syscall"
	"testing"

	"example.com/redlock/testkit/redisserver"
)

// The terminal sends ^C to the group in its foreground, which is ours.
func TestServersAreOutOfReachOfTheTerminal(t *testing.T) {
	s := redisserver.StartN(t, 1)[0]
	group, err := syscall.Getpgid(s.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if group != s.Pid() || group == syscall.Getpgrp() {
		t.Errorf("process %d is in group %d, we are in %d", s.Pid(), group, syscall.Getpgrp())
	}
}
