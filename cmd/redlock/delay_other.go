//go:build !unix

package main

import (
	"errors"
	"fmt"
	"runtime"
)

// delayStart refuses: where a process cannot become the server, whoever started
// us would watch and stop another process than the server.
func (a *app) delayStart(delay, []string) error {
	return fmt.Errorf("delay-start is not available on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
