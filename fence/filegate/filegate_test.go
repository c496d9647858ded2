//go:build unix && !(solaris || illumos || aix)

package filegate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock/fence"
	"example.com/redlock/fence/internal/gatemodel"
)

// The test binary is also the processes that die or count: roleEnv says which.
const (
	roleEnv  = "REDLOCK_FILEGATE_ROLE"
	pathEnv  = "REDLOCK_FILEGATE_PATH"
	stepEnv  = "REDLOCK_FILEGATE_STEP"
	tokenEnv = "REDLOCK_FILEGATE_TOKEN"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleEnv) {
	case "":
		os.Exit(m.Run())
	case "die":
		err = dieAt(os.Getenv(pathEnv), os.Getenv(stepEnv))
	case "count":
		err = count(os.Getenv(pathEnv), os.Getenv(tokenEnv))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func command(role, path string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role, pathEnv+"="+path)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	return cmd
}

func mustOpen(t *testing.T, g *Gate, token fence.Token) *Writer {
	t.Helper()
	w, err := g.Open(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if data, err := os.ReadFile(path); string(data) != want || err != nil {
		t.Errorf("%s: %q, %v; want %q", path, data, err, want)
	}
}

// TestB26LateWriteIsRefused: A reads and is paused; B, who has the lock now,
// opens the gate, reads and writes; A's write comes too late.
func TestB26LateWriteIsRefused(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "stock")
	a := mustOpen(t, New(path), 5)
	if _, err := a.ReadFile(ctx); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := a.WriteFile(ctx, []byte("10")); err != nil {
		t.Fatal(err)
	}
	b := mustOpen(t, New(path), 6)
	// B has not written yet: opening alone stops A.
	err := a.WriteFile(ctx, []byte("9"))
	if stale, ok := errors.AsType[*fence.StaleError](err); !ok || stale.Seen.Token != 6 || stale.Resource != path {
		t.Errorf("late write: %v", err)
	}
	if _, err := a.ReadFile(ctx); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late read: %v", err)
	}
	if data, err := b.ReadFile(ctx); string(data) != "10" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if err := b.WriteFile(ctx, []byte("7")); err != nil {
		t.Error(err)
	}
	wantFile(t, path, "7")
	if _, err := New(path).Open(ctx, 5); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late open: %v", err)
	}
}

// TestB26WithoutGateAnUpdateIsLost is what the gate is for: the same story
// without it.
func TestB26WithoutGateAnUpdateIsLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stock")
	write := func(v string) {
		if err := os.WriteFile(path, []byte(v), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("10")
	wantFile(t, path, "10") // A reads and is paused
	wantFile(t, path, "10") // B reads
	write("7")              // B sells three
	write("9")              // A wakes up and sells one
	wantFile(t, path, "9")  // B's update is lost
}

func TestAgainstModel(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gatemodel.Run(t, 1, 1000, func(c fence.Claim) (*gatemodel.Opened, error) {
		read := func(p pass) func() (string, error) {
			return func() (string, error) {
				data, err := p.readFile(ctx)
				return string(data), err
			}
		}
		if c.Shared {
			r, err := New(path).OpenShared(ctx, c.Token)
			if err != nil {
				return nil, err
			}
			return &gatemodel.Opened{Read: read(r.pass)}, nil
		}
		w, err := New(path).Open(ctx, c.Token)
		if err != nil {
			return nil, err
		}
		return &gatemodel.Opened{Read: read(w.pass), Write: func(v string) error { return w.WriteFile(ctx, []byte(v)) }}, nil
	})
}

// dieAt opens the gate with 7 and writes "new", and is killed before the step
// of that number; it prints how many there are if it lives.
func dieAt(path, number string) error {
	last, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	taken := 0
	g := New(path)
	g.run = func(steps []step) error {
		for i := range steps {
			if taken == last {
				if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
					return err
				}
				select {}
			}
			taken++
			if err := steps[i].do(); err != nil {
				return fmt.Errorf("%s: %w", steps[i].name, err)
			}
		}
		return nil
	}
	ctx := context.Background()
	w, err := g.Open(ctx, 7)
	if err != nil {
		return err
	}
	if err := w.WriteFile(ctx, []byte("new")); err != nil {
		return err
	}
	fmt.Println("lived through", taken)
	return nil
}

// TestCrashAtEveryStep: a process is killed before each step of opening and
// writing. The file is whole, its permissions stay, old tokens are refused if
// new ones had any effect, and the next holder goes on.
func TestCrashAtEveryStep(t *testing.T) {
	ctx := t.Context()
	lived := false
	steps := 0
	for ; !lived; steps++ {
		path := filepath.Join(t.TempDir(), "data")
		if err := mustOpen(t, New(path), 5).WriteFile(ctx, []byte("old")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		out, err := command("die", path, stepEnv+"="+strconv.Itoa(steps)).Output()
		if lived = err == nil; lived {
			if want := fmt.Sprintf("lived through %d\n", steps); string(out) != want {
				t.Fatalf("%s, want %s", out, want)
			}
		} else if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v: %s", steps, err, out)
		}
		after, err := New(path).read()
		if err != nil || after != (fence.Gate{Exclusive: 5}) && after != (fence.Gate{Exclusive: 7}) {
			t.Errorf("step %d: %v, %v", steps, after, err)
		}
		data, err := os.ReadFile(path)
		if err != nil || string(data) != "old" && (string(data) != "new" || after.Exclusive != 7) {
			t.Errorf("step %d: %q, %v, gate %v", steps, data, err, after)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
			t.Errorf("step %d: %v, %v", steps, info.Mode(), err)
		}
		if _, err := New(path).Open(ctx, 6); errors.Is(err, fence.ErrStale) != (after.Exclusive == 7) {
			t.Errorf("step %d: an old token: %v", steps, err)
		}
		next := mustOpen(t, New(path), 8)
		if got, err := next.ReadFile(ctx); string(got) != string(data) || err != nil {
			t.Errorf("step %d: the next holder reads %q, %v", steps, got, err)
		}
		if err := next.WriteFile(ctx, []byte("newer")); err != nil {
			t.Errorf("step %d: the next holder: %v", steps, err)
		}
		wantFile(t, path, "newer")
	}
	if steps < 14 {
		t.Errorf("died at %d steps only", steps-1)
	}
}

// TestFailureAtEveryStep: what failed is reported, and can be tried again.
func TestFailureAtEveryStep(t *testing.T) {
	ctx := t.Context()
	failure := errors.New("disk full")
	for at := range 14 {
		path := filepath.Join(t.TempDir(), "data")
		taken := 0
		g := New(path)
		g.run = func(steps []step) error {
			for _, s := range steps {
				if taken++; taken-1 == at {
					return failure
				}
				if err := s.do(); err != nil {
					return err
				}
			}
			return nil
		}
		w, err := g.Open(ctx, 5)
		if w == nil {
			w = mustOpen(t, g, 5)
		}
		err = errors.Join(err, w.WriteFile(ctx, []byte("new")))
		if !errors.Is(err, failure) {
			t.Errorf("step %d: %v", at, err)
		}
		if err := w.WriteFile(ctx, []byte("newer")); err != nil {
			t.Errorf("step %d, again: %v", at, err)
		}
		wantFile(t, path, "newer")
	}
}

const counts = 50

// count adds 1 to the number in the file, in its turn.
func count(path, token string) error {
	n, err := fence.ParseToken(token)
	if err != nil {
		return err
	}
	ctx := context.Background()
	w, err := New(path).Open(ctx, n)
	if err != nil {
		return err
	}
	fmt.Println("open")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for i := range counts {
		if err := w.WriteFile(ctx, []byte(token)); errors.Is(err, fence.ErrStale) {
			fmt.Println("stale after", i)
			return nil
		} else if err != nil {
			return err
		}
	}
	fmt.Println("done")
	return nil
}

// TestProcessesExcludeEachOther: processes with growing tokens write as fast as
// they can while the next one opens. What a process reads through the gate is
// what it last wrote itself, and the last one is undisturbed.
func TestProcessesExcludeEachOther(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "data")
	type child struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	var children []child
	for token := 1; token <= 4; token++ {
		cmd := command("count", path, tokenEnv+"="+strconv.Itoa(token))
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		c := child{cmd, in, bufio.NewReader(out)}
		if text, err := c.out.ReadString('\n'); text != "open\n" {
			t.Fatal(text, err)
		}
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
		children = append(children, c)
	}
	w := mustOpen(t, New(path), 5)
	if err := w.WriteFile(ctx, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	for range counts {
		if data, err := w.ReadFile(ctx); string(data) != "mine" || err != nil {
			t.Fatalf("%q, %v: somebody wrote after the gate was opened", data, err)
		}
	}
	for i, c := range children {
		text, err := c.out.ReadString('\n')
		if err := errors.Join(err, c.cmd.Wait()); err != nil || !strings.HasPrefix(text, "stale") && text != "done\n" {
			t.Errorf("process %d: %q, %v", i, text, err)
		}
	}
	wantFile(t, path, "mine")
}

// TestLockOfAnotherProcess: the check and the operation are one step to others.
func TestLockOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	w := mustOpen(t, New(path), 5)
	unlock, err := lock(t.Context(), path+".lock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.WriteFile(ctx, []byte("x")) }()
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(50 * time.Millisecond): // passes if it is too short, too
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	unlock()
	if err := w.WriteFile(t.Context(), []byte("x")); err != nil {
		t.Error(err)
	}
}

// TestDamagedTokens: what cannot be understood lets nobody in.
func TestDamagedTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	w := mustOpen(t, New(path), 5)
	for _, text := range []string{"", "exclusive 5\n", "exclusive 05\nshared 0\n", "exclusive 5\nshared 0\nmore", "exclusive -1\nshared 0\n"} {
		if err := os.WriteFile(path+gateSuffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := New(path).Open(t.Context(), 6)
		if err == nil || w.WriteFile(t.Context(), nil) == nil {
			t.Errorf("%q was believed", text)
		}
	}
	if err := os.Remove(path + gateSuffix); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteFile(t.Context(), nil); !errors.Is(err, fence.ErrNotOpen) {
		t.Errorf("the tokens are gone: %v", err)
	}
}
