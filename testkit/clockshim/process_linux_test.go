package clockshim_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.com/redlock/testkit/clockshim"
)

func TestEveryWallClockOfAProcessFollowsAndNoOther(t *testing.T) {
	clock, program := newClock(t), compileClocks(t)
	clock.Jump(-100 * time.Second)
	clock.Rate(1.08)

	wallBefore, monoBefore, bootBefore := clock.Now(), kernelNow(t, unix.CLOCK_MONOTONIC), kernelNow(t, unix.CLOCK_BOOTTIME)
	shown := runClocks(t, program, clock.Env())
	wallAfter, monoAfter, bootAfter := clock.Now(), kernelNow(t, unix.CLOCK_MONOTONIC), kernelNow(t, unix.CLOCK_BOOTTIME)

	for _, c := range []struct {
		name          string
		before, after int64
		step          time.Duration // of what the function tells
	}{
		{"gettimeofday", wallBefore.UnixNano(), wallAfter.UnixNano(), time.Microsecond},
		{"time", wallBefore.UnixNano(), wallAfter.UnixNano(), time.Second},
		{"*time", wallBefore.UnixNano(), wallAfter.UnixNano(), time.Second},
		{"CLOCK_REALTIME", wallBefore.UnixNano(), wallAfter.UnixNano(), 1},
		{"CLOCK_REALTIME_COARSE", wallBefore.UnixNano(), wallAfter.UnixNano(), 1},
		{"CLOCK_MONOTONIC", monoBefore, monoAfter, 1},
		{"CLOCK_BOOTTIME", bootBefore, bootAfter, 1},
		{"timezone", 0, 0, 1},
	} {
		ns, ok := shown[c.name]
		if earliest := c.before - c.before%int64(c.step); !ok || ns < earliest || ns > c.after {
			t.Errorf("%s shows %d (%v), want %d to %d", c.name, ns, ok, earliest, c.after)
		}
	}
	if clock.Loads() != 1 {
		t.Errorf("%d processes took the clock, want the one", clock.Loads())
	}
}

func TestWithoutAControlFileTheLibraryTellsTheTruth(t *testing.T) {
	env := []string{newClock(t).Env()[0]} // the library alone
	before := time.Now().UnixNano()
	ns := runClocks(t, compileClocks(t), env)["CLOCK_REALTIME"]
	if after := time.Now().UnixNano(); ns < before || ns > after {
		t.Errorf("CLOCK_REALTIME shows %d, want %d to %d", ns, before, after)
	}
}

func TestAProcessDoesNotStartWithAControlFileThatIsNone(t *testing.T) {
	program, preload := compileClocks(t), newClock(t).Env()[0]
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{short, short + ".missing", ""} {
		cmd := exec.Command(program)
		cmd.Env = []string{preload, "REDLOCK_CLOCK=" + file}
		out, err := cmd.CombinedOutput()
		if want := "clockshim: not a control file: " + file + "\n"; err == nil || string(out) != want {
			t.Errorf("with %q: %v, %q; want it to fail with %q", file, err, out, want)
		}
	}
}

func TestAnotherPreloadedLibraryKeepsItsPlace(t *testing.T) {
	t.Setenv("LD_PRELOAD", "/lib/other.so")
	if env := newClock(t).Env(); !strings.HasSuffix(env[0], "/clockshim.so:/lib/other.so") {
		t.Errorf("environment %q", env)
	}
}

func TestADirectoryThatLD_PRELOADCannotNameIsRefused(t *testing.T) {
	for _, name := range []string{"with space", "with:colon"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := clockshim.New(dir); err == nil || !strings.Contains(err.Error(), "LD_PRELOAD") {
			t.Errorf("clock in %q: %v", dir, err)
		}
	}
	if _, err := clockshim.New(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("clock in a missing directory: %v", err)
	}
}

func newClock(t *testing.T) *clockshim.Clock {
	t.Helper()
	clock, err := clockshim.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return clock
}

func compileClocks(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "clocks")
	if out, err := exec.Command("cc", "-o", program, "testdata/clocks.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return program
}

func runClocks(t *testing.T, program string, env []string) map[string]int64 {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	shown := map[string]int64{}
	for line := range strings.Lines(string(out)) {
		var name string
		var ns int64
		if _, err := fmt.Sscan(line, &name, &ns); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		shown[name] = ns
	}
	return shown
}

func kernelNow(t *testing.T, id int32) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}
