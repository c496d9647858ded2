package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"example.com/redlock"
)

// The reasons that are the command's own. Like those of package redlock they
// are found with errors.Is.
var (
	errUsage     = errors.New("wrong usage")
	errConfig    = errors.New("configuration")
	errNotFound  = errors.New("command not found")
	errCannotRun = errors.New("command cannot be run")
)

const (
	exitHeld     = 75
	exitInternal = 125
	exitSignal   = 128 // plus the number of the signal
)

// exitCodes says with which code each reason leaves. An error may have several
// reasons, so the order counts: first what a person must put right, because
// trying again does not help; and what ended a lease before what could not be
// asked about it.
var exitCodes = []struct {
	code    int
	means   string
	reasons []error
}{
	{64, "wrong usage", []error{errUsage, redlock.ErrBadOption, errors.ErrUnsupported}},
	{77, "not permitted by a node", []error{redlock.ErrNotPermitted}},
	{78, "configuration, or nodes that do not fit it", []error{errConfig, redlock.ErrMismatch, redlock.ErrUnfit, redlock.ErrForeignKey}},
	{124, "--max-hold reached, command stopped", []error{redlock.ErrMaxHold}},
	{79, "lease lost, command stopped", []error{redlock.ErrLost}},
	{exitHeld, "held by others (-E changes it)", []error{redlock.ErrHeld}},
	{69, "no quorum of nodes", []error{redlock.ErrNoQuorum, redlock.ErrQuarantined, redlock.ErrOverloaded, context.DeadlineExceeded}},
	{127, "command not found", []error{errNotFound}},
	{126, "command cannot be run", []error{errCannotRun}},
	{exitInternal, "redlock itself failed", nil},
}

// coded is an error with an exit code of its own. Without an err there is
// nothing left to say.
type coded struct {
	code int
	err  error
}

func (e coded) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e coded) Unwrap() error { return e.err }

// signalled is the signal that ended redlock's own work.
type signalled syscall.Signal

func (s signalled) Error() string { return "ended by signal: " + syscall.Signal(s).String() }

// exitCode returns the code that err leaves with.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if c, ok := errors.AsType[coded](err); ok {
		return c.code
	}
	if s, ok := errors.AsType[signalled](err); ok {
		return exitSignal + int(s)
	}
	for _, row := range exitCodes {
		for _, reason := range row.reasons {
			if errors.Is(err, reason) {
				return row.code
			}
		}
	}
	return exitInternal
}

// exitHelp is the table for people.
func exitHelp() string {
	rows := slices.Clone(exitCodes)
	slices.SortFunc(rows, func(a, b struct {
		code    int
		means   string
		reasons []error
	}) int {
		return cmp.Compare(a.code, b.code)
	})
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "  %-5d %s\n", row.code, row.means)
	}
	fmt.Fprintf(&b, "  128+N redlock, or the command, was ended by signal N\n")
	return b.String()
}

// usagef returns an error about the command line.
func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

// configf returns an error about the configuration.
func configf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errConfig, fmt.Sprintf(format, args...))
}
