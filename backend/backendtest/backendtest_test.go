package backendtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.com/redlock/backend"
)

var errUnsupported = errors.ErrUnsupported

// mistakeEnv names the mistake that TestReference makes in a process of its
// own, where its failure is what is wanted.
const mistakeEnv = "BACKENDTEST_MISTAKE"

func TestReference(t *testing.T) {
	s := newService(mistake(os.Getenv(mistakeEnv)))
	if s.mistake != "" {
		patience = 4 * time.Second
	}
	Run(t, Harness{Open: func(*testing.T) backend.Backend { return newClient(s) }})
}

// TestMistakesAreCaught runs the suite on backends that are wrong, each in the
// case that is there for it.
func TestMistakesAreCaught(t *testing.T) {
	for _, c := range []struct {
		mistake mistake
		caught  string // the case
		says    string // part of what the case says
	}{
		{heldIgnored, "Exclusion", "two holders at once"},
		{releaseUnchecked, "ReleaseOfLost", "held name: got error <nil>, want held by another"},
		{tokenReused, "TokensGrow", "token 1 came after 1"},
		{lossUnreported, "ExtendNeverRevives", "Lost is called"},
		{lossReportedLate, "NoRenewEnds", "had been called 0 times"},
		{extendRevives, "ExtendNeverRevives", "Extend of a lost lease: got error <nil>"},
		{handleTwice, "ResumeOnce", "the second Resume: got error <nil>"},
		{waitDeaf, "CancelWhileWaiting", "did not return"},
		{ctxOwnsLease, "OutlivesItsContext", "renewed after the context"},
		{nilNil, "NoWait", "neither a lease nor an error"},
		{namesFolded, "AnyBytesInNames", "held by another"},
		{lineHidden, "Inspect", "Inspect tells of who waits"},
		{breakIgnored, "Break", "Extend of a broken lease returned nil"},
		{patternIgnored, "List", "names, want 0"},
		{falseAlarm, "Doctor", "of a service that is well"},
		{stopForbids, "StopRenewalEnds", "Extend of a lease whose renewal was stopped"},
	} {
		t.Run(string(c.mistake), func(t *testing.T) {
			t.Parallel()
			out, err := runWithMistake(t, c.mistake, c.caught)
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("case %s passed on a backend where %s (%v):\n%s", c.caught, c.mistake, err, out)
			}
			if !strings.Contains(out, "--- FAIL: TestReference/"+c.caught+" ") || !strings.Contains(out, c.says) {
				t.Errorf("case %s did not say %q:\n%s", c.caught, c.says, out)
			}
		})
	}
}

// TestAnExtensionMayBeTriedAgain runs every case that extends by hand on a backend
// whose nodes are late once.
func TestAnExtensionMayBeTriedAgain(t *testing.T) {
	out, err := runWithMistake(t, hesitant, "(TokensGrow|StopRenewalEnds|ExtendProlongs|ReleaseOfLost|ResumeOnce)")
	if err != nil || strings.Contains(out, "no tests to run") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func runWithMistake(t *testing.T, m mistake, name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "-test.run=^TestReference$/^"+name+"$")
	cmd.Env = append(os.Environ(), mistakeEnv+"="+string(m))
	out, err := cmd.CombinedOutput()
	return string(out), err
}
