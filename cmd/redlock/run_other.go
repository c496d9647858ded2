//go:build !unix

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// execute refuses: without process groups and signals a command could not be
// stopped in time.
func (a *app) execute(context.Context, plan, config, bool) error {
	return fmt.Errorf("run is not available on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
