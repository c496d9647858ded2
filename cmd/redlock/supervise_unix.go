//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"example.com/redlock"
	"golang.org/x/sys/unix"
)

// supervisor lets a command run only as long as its lease.
type supervisor struct {
	log     *slog.Logger
	lease   *redlock.Lease
	grace   time.Duration
	child   *child
	tty     *terminal
	signals chan os.Signal
	// wanted tells that the command has asked for the terminal.
	wanted bool
}

// The group must be gone when the validity ends, so KILL comes a little
// earlier: a signal takes effect when its receiver is next scheduled.
const (
	killShare  = 5 // one fifth of the grace
	killAhead  = 100 * time.Millisecond
	killAtOnce = 10 * time.Millisecond // with next to no grace
)

// killMargin is how long before the end of the validity KILL is sent.
func killMargin(grace time.Duration) time.Duration {
	return max(min(grace/killShare, killAhead), killAtOnce)
}

// stopTime is when the command has to be told to end.
func (s *supervisor) stopTime() time.Time {
	return s.lease.Deadline().Add(-max(s.grace, killMargin(s.grace)))
}

// run returns how the command ended, or why it was stopped.
func (s *supervisor) run() (unix.WaitStatus, error) {
	timer := time.NewTimer(time.Until(s.stopTime()))
	defer timer.Stop()
	for {
		select {
		case ws := <-s.child.changes:
			if !ws.Stopped() {
				s.tty.takeBack(s.child.pid)
				return ws, nil
			}
			s.stopped(ws.StopSignal())
		case sig := <-s.signals:
			if sig != unix.SIGCONT {
				s.child.signal(sig.(unix.Signal))
			} else if err := s.resume(); err != nil {
				return 0, s.end(err)
			}
		case <-s.lease.Context().Done():
			return 0, s.end(context.Cause(s.lease.Context()))
		case <-timer.C:
			left := time.Until(s.stopTime()) // an extension has moved it
			if left <= 0 {
				return 0, s.end(errNotExtended)
			}
			timer.Reset(left)
		}
	}
}

var errNotExtended = fmt.Errorf("%w: it could not be extended in time", redlock.ErrLost)

// end stops the command because of cause, which it returns.
func (s *supervisor) end(cause error) error {
	// The deadline is read once: the command has been told, and what an
	// extension adds now comes too late for it.
	deadline := s.lease.Deadline()
	grace := min(s.grace, time.Until(deadline)-killMargin(s.grace))
	why := redlock.ErrLost
	if errors.Is(cause, redlock.ErrMaxHold) {
		why = redlock.ErrMaxHold
	}
	s.log.Warn("stopping", "because", why, "grace", max(grace, 0), "remaining", max(time.Until(deadline), 0))
	if grace > 0 {
		s.child.signal(unix.SIGTERM)
		s.child.signal(unix.SIGCONT) // a stopped process would not notice
	}
	if grace <= 0 || !s.child.awaitGone(grace) {
		s.child.signal(unix.SIGKILL)
		s.log.Info("killed")
		// It takes effect unless a process sits in the kernel, on a dead file
		// server for instance. There is nothing more that could be done.
		const patience = 5 * time.Second
		if !s.child.awaitGone(patience) {
			s.log.Error("survived", "group", s.child.pid)
		}
	}
	s.tty.takeBack(s.child.pid)
	return cause
}

// stopped is called when the command has been stopped by sig.
func (s *supervisor) stopped(sig unix.Signal) {
	byTerminal := sig == unix.SIGTSTP || sig == unix.SIGTTIN || sig == unix.SIGTTOU
	if sig == unix.SIGTTIN || sig == unix.SIGTTOU {
		s.wanted = true
		if s.tty.give(s.child.pid) {
			s.child.signal(unix.SIGCONT)
			return
		}
	}
	if byTerminal && s.tty != nil && s.tty.alone {
		// The kernel does not let a terminal stop a job that nobody could
		// continue, and would not have without us in between.
		s.child.signal(unix.SIGCONT)
		return
	}
	if s.tty.takeBack(s.child.pid) {
		// ^Z reached the command's group only; the rest of the job, a script
		// around us for instance, has to stop too. We do so below for certain.
		signal.Ignore(unix.SIGTSTP)
		_ = unix.Kill(0, unix.SIGTSTP)
		signal.Notify(s.signals, unix.SIGTSTP)
	}
	// While we are stopped nobody watches the lease: the whole group has to stop,
	// not only the process that was told to.
	s.child.signal(unix.SIGSTOP)
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
}

// resume is called at CONT: after a stop of the command, or of ours alone. It
// lets the command go on, unless the lease did not outlast the stop.
func (s *supervisor) resume() error {
	if err := s.checkLease(); err != nil {
		return err
	}
	if s.tty != nil && (s.tty.whole || s.wanted) {
		s.tty.give(s.child.pid) // after fg; after bg it is not ours to give
	}
	s.child.signal(unix.SIGCONT)
	return nil
}

// checkLease asks the nodes, because the lease may have been broken meanwhile.
// If they do not answer, what is left of the validity counts.
func (s *supervisor) checkLease() error {
	ctx, cancel := context.WithDeadline(s.lease.Context(), s.stopTime())
	defer cancel()
	err := s.lease.Extend(ctx)
	switch {
	case s.lease.Context().Err() != nil:
		return context.Cause(s.lease.Context())
	case errors.Is(err, redlock.ErrLost):
		return err
	case time.Until(s.stopTime()) <= 0:
		return errNotExtended
	}
	return nil
}
