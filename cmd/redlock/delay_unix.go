//go:build unix

package main

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// delayStart waits, then replaces this process by the server, so that whoever
// started us has the server itself under the process id that it knows. It
// returns only if there is no server.
func (a *app) delayStart(d delay, argv []string) error {
	path, err := findCommand(argv[0])
	if err != nil {
		return err // before the wait
	}
	signals := make(chan os.Signal, 1)
	notify(signals, endSignals...)
	a.log.Warn("delaying", "server", path, "max_ttl", d.maxTTL, "wait", d.wait,
		"because", "a lock that it granted before it went down may last so long")
	timer := time.NewTimer(d.wait) // monotonic, whatever happens to the wall clock
	defer timer.Stop()
	select {
	case sig := <-signals:
		return signalled(sig.(unix.Signal))
	case <-timer.C:
	}
	signal.Stop(signals) // from here on a signal ends us as it ends others
	select {
	case sig := <-signals: // one that came just before, and would be lost
		return signalled(sig.(unix.Signal))
	default:
	}
	a.log.Info("starting", "server", path)
	return startError(argv[0], unix.Exec(path, argv, a.env))
}
