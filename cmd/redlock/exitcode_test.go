//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/redlock"
)

func TestExitCodeOfEveryReason(t *testing.T) {
	quorum := func(reasons ...error) error { return &redlock.QuorumError{Reasons: reasons} }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything else"), 125},
		{usagef("x"), 64},
		{configf("x"), 78},
		{fmt.Errorf("x: %w", errors.ErrUnsupported), 64},
		{redlock.ErrBadOption, 64},
		{redlock.ErrHeld, 75},
		{redlock.ErrNoQuorum, 69},
		{redlock.ErrQuarantined, 69},
		{redlock.ErrOverloaded, 69},
		{redlock.ErrLost, 79},
		{redlock.ErrMaxHold, 124},
		{redlock.ErrMismatch, 78},
		{redlock.ErrUnfit, 78},
		{redlock.ErrForeignKey, 78},
		{redlock.ErrNotPermitted, 77},
		{redlock.ErrClosed, 125},
		{errNotFound, 127},
		{errCannotRun, 126},
		{signalled(syscall.SIGTERM), 143},
		{coded{code: 3}, 3},
		{coded{code: 4, err: redlock.ErrHeld}, 4},
		{context.DeadlineExceeded, 69},
		// Several reasons at once: what a person must put right comes first.
		{quorum(redlock.ErrUnfit, redlock.ErrNotPermitted), 77},
		{quorum(redlock.ErrNoQuorum, redlock.ErrUnfit), 78},
		{quorum(redlock.ErrNoQuorum, redlock.ErrMismatch), 78},
		{quorum(redlock.ErrNoQuorum, redlock.ErrHeld), 75},
		{quorum(redlock.ErrNoQuorum, context.DeadlineExceeded), 69},
		{quorum(redlock.ErrLost, redlock.ErrNoQuorum), 79},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestHelpListsEveryExitCode(t *testing.T) {
	help := run(t, "run", "--help")
	if help.code != 0 {
		t.Fatal(help)
	}
	for _, row := range exitCodes {
		if !strings.Contains(help.stdout, fmt.Sprintf("  %-5d %s\n", row.code, row.means)) {
			t.Errorf("%d is not in the help", row.code)
		}
	}
}

// B121: the command's own code comes through, and no code of ours is
// mistaken for it.
func TestB121ExitCodes(t *testing.T) {
	dir := t.TempDir()
	notExecutable := filepath.Join(dir, "data")
	noInterpreter := filepath.Join(dir, "script")
	noFormat := filepath.Join(dir, "plain")
	for path, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		notExecutable: {"", 0o644},
		noInterpreter: {"#!/nonexistent\n", 0o755},
		noFormat:      {"exit 0\n", 0o755},
	} {
		if err := os.WriteFile(path, []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
	}
	holder := start(t, "run", "B121", "sh", "-c", "echo; exec sleep 1000")
	holder.line()

	for _, c := range []struct {
		args string
		want int
	}{
		{"run free true", 0},
		{"run free sh -c exit\t7", 7},
		{"run free sh -c exit\t255", 255},
		{"run free sh -c kill\t-9\t$$", 128 + 9},
		{"run free sh -c kill\t-15\t$$", 128 + 15},
		{"run free /nonexistent", 127},
		{"run free no-such-command-anywhere", 127},
		{"run free " + noInterpreter, 127},
		{"run free " + notExecutable, 126},
		{"run free " + noFormat, 126},
		{"run free " + dir, 126},
		{"run -n B121 true", 75},
		{"run -w 0.1 B121 true", 75},
		{"run -n -E 33 B121 true", 33},
		{"run -n -E 0 B121 true", 0},
		{"run -n -E 33 free /nonexistent", 127},
		{"run -n --if-held skip B121 true", 0},
		{"run -n --if-held fail B121 true", 75},
		// The command's own 75 is not ours to change.
		{"run -n -E 33 free sh -c exit\t75", 75},
		{"run -n --if-held skip free sh -c exit\t75", 75},
		{"acquire -n B121", 75},
		{"acquire -n -E 3 B121", 3},
		{"run", 64},
		{"run --nodes redis://127.0.0.1:1 --connect-wait 0.2 free true", 69},
		{"run --max-ttl 29s --ttl 10 free true", 78}, // the nodes say 30s
		{"status --nodes redis://127.0.0.1:1", 69},
		{"extend rl1.nonsense", 64},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Split(c.args, " ")
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "\t", " ")
			}
			if r := run(t, args...); r.code != c.want {
				t.Errorf("exit %d, want %d; stderr:\n%s", r.code, c.want, r.stderr)
			}
		})
	}
	if err := holder.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	holder.wantExit(143)
}
