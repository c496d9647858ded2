//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"time"

	"example.com/redlock"
	"golang.org/x/sys/unix"
)

// forwarded are the signals that a running command gets from us, besides those
// that would end us.
var forwarded = []os.Signal{unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT}

// execute carries out a plan.
func (a *app) execute(ctx context.Context, p plan, c config, demo bool) error {
	path, err := findCommand(p.command[0])
	if err != nil {
		return err // before anybody waits for it
	}
	signals := make(chan os.Signal, 16)
	notify(signals, endSignals...)
	defer signal.Stop(signals)
	surviveBrokenPipes()

	lk, done, err := a.runLocker(ctx, c, demo)
	if err != nil {
		return err
	}
	defer done()
	start := time.Now()
	lease, err := a.take(ctx, lk, p, signals)
	if err != nil {
		return err
	}
	a.reports.pass()
	g := grant{name: p.name, owner: p.acquire.Owner, token: lease.Token(), ttl: p.acquire.TTL}
	a.log.Info("acquired", "name", g.name, "token", uint64(g.token), "owner", g.owner, "ttl", g.ttl, "waited", time.Since(start))
	a.said.settle(time.Second) // before the command says anything
	return a.runUnder(lease, p, path, g, signals)
}

// runLocker returns the Locker to use, and what to do when done with it.
func (a *app) runLocker(ctx context.Context, c config, demo bool) (*redlock.Locker, func(), error) {
	if demo {
		return a.demoLocker(ctx, c)
	}
	lk, err := a.open(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return lk, func() { a.close(lk) }, nil
}

// take waits for the lock. A signal ends the wait.
func (a *app) take(ctx context.Context, lk *redlock.Locker, p plan, signals chan os.Signal) (*redlock.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		lease *redlock.Lease
		err   error
	}
	results := make(chan result, 1)
	go func() {
		lease, err := a.acquire(ctx, lk, p.name, p.acquire)
		results <- result{lease, err}
	}()
	select {
	case r := <-results:
		return r.lease, r.err
	case sig := <-signals:
		cancel()
		if r := <-results; r.lease != nil {
			a.release(r.lease)
		}
		return nil, signalled(sig.(unix.Signal))
	}
}

// runUnder runs the command under the lease, and ends the lease.
func (a *app) runUnder(lease *redlock.Lease, p plan, path string, g grant, signals chan os.Signal) error {
	taken := time.Now()
	tty := openTerminal()
	defer tty.close()
	adoptOrphans()
	notify(signals, forwarded...) // what comes from now on is for the command
	child, err := startChild(path, p.command, g.childEnv(a.env), tty)
	// From here on we may have to handle the terminal from the background. Not
	// earlier: the command would inherit it.
	signal.Ignore(unix.SIGTTOU)
	if err != nil {
		tty.takeBack(0) // from the process that was to become the command
		a.release(lease)
		return err
	}
	a.log.Info("started", "name", p.name, "pid", child.pid)

	s := &supervisor{log: a.log.With("name", p.name), lease: lease, grace: p.grace, child: child, tty: tty, signals: signals}
	ws, err := s.run()
	if err != nil {
		a.release(lease)
		return err
	}
	code := exitError(ws)
	a.log.Info("ended", "name", p.name, "code", exitCode(code))
	lasted := lease.Context().Err() == nil && time.Now().Before(lease.Deadline())
	if left := time.Until(taken.Add(p.minHold)); left > 0 && lasted {
		a.keep(lease, left, signals)
		return code
	}
	if err := a.release(lease); errors.Is(err, redlock.ErrLost) {
		return err // others may have held the name while the command ran
	}
	return code
}

// keep holds the lease for d after the command has ended. A signal that would
// end us ends that, and leaves the rest of the time to the TTL.
func (a *app) keep(lease *redlock.Lease, d time.Duration, signals chan os.Signal) {
	signal.Reset(unix.SIGTSTP) // there is only us to stop
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case sig := <-signals:
			if slices.Contains(endSignals, sig) {
				a.leave(lease)
				return
			}
		case <-timer.C:
			a.release(lease)
			return
		case <-lease.Context().Done():
			a.log.Warn("lost", "name", lease.Name(), "error", context.Cause(lease.Context()))
			a.release(lease)
			return
		}
	}
}

// leave ends the renewal and lets the TTL run out.
func (a *app) leave(lease *redlock.Lease) {
	remaining := max(time.Until(lease.Deadline()), 0)
	if _, err := lease.Handle(); err == nil {
		a.log.Info("left", "name", lease.Name(), "remaining", remaining)
	}
}

// release gives the lease back. That a lost lease is lost was said before, or
// is said by the caller.
func (a *app) release(lease *redlock.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	err := lease.Release(ctx)
	switch {
	case err == nil:
		a.log.Info("released", "name", lease.Name())
	case !errors.Is(err, redlock.ErrLost):
		a.log.Warn("release", "name", lease.Name(), "error", err)
	}
	return err
}
