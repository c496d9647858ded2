package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.com/redlock"
)

// The test binary is also the other processes of a test: roleEnv says which.
const (
	roleEnv   = "REDLOCK_TEST_ROLE"
	nodesEnv  = "REDLOCK_TEST_NODES"
	handleEnv = "REDLOCK_TEST_HANDLE"
	// maxTTLEnv and clusterEnv are options of the same names, empty for the default.
	maxTTLEnv  = "REDLOCK_TEST_MAX_TTL"
	clusterEnv = "REDLOCK_TEST_CLUSTER"
	waitersEnv = "REDLOCK_TEST_WAITERS"

	// roleChurn takes and gives back leases until it is killed, and prints a
	// line when it has had the first.
	roleChurn = "churn"
	// roleRelease takes over the lease of a handle and releases it.
	roleRelease = "release"
	// roleCycle takes and gives back one lease.
	roleCycle = "cycle"
	// roleHold holds a lease of a second, and says what the library told it first
	// after a pause of the whole process.
	roleHold = "hold"
	// roleKeep holds a lease and says its token, when it will be over, and when it is.
	roleKeep = "keep"
	// roleCount takes and gives back leases until its input ends, and tells of each.
	roleCount = "count"
	// roleCrowd has as many callers as waitersEnv says take and give back one lease, and
	// prints a line when all have.
	roleCrowd = "crowd"
)

// play is the main function of the other processes.
func play(role string) int {
	ctx := context.Background()
	maxTTL, _ := time.ParseDuration(os.Getenv(maxTTLEnv))
	lk, err := redlock.Open(ctx, strings.Split(os.Getenv(nodesEnv), ","), &redlock.Options{
		NodeTimeout: generous, Logger: slog.New(slog.DiscardHandler), MaxTTL: maxTTL, Cluster: os.Getenv(clusterEnv),
	})
	if err == nil {
		switch role {
		case roleChurn:
			err = churn(ctx, lk)
		case roleRelease:
			err = resumeAndRelease(ctx, lk, os.Getenv(handleEnv))
		case roleCycle:
			err = takeOnce(ctx, lk)
		case roleHold:
			err = hold(ctx, lk)
		case roleKeep:
			err = keep(ctx, lk)
		case roleCount:
			err = count(ctx, lk)
		case roleCrowd:
			err = crowd(ctx, lk)
		default:
			err = fmt.Errorf("unknown role %q", role)
		}
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

func churn(ctx context.Context, lk *redlock.Locker) error {
	o := &redlock.AcquireOptions{TTL: time.Second}
	for i := 0; ; i++ {
		l, err := lk.Acquire(ctx, fmt.Sprintf("churn/%d", i%8), o)
		if err != nil {
			return err
		}
		if i == 0 {
			fmt.Println("going")
		}
		if err := l.Extend(ctx); err != nil {
			return err
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
	}
}

func takeOnce(ctx context.Context, lk *redlock.Locker) error {
	l, err := lk.Acquire(ctx, "x", nil)
	if err != nil {
		return err
	}
	if err := errors.Join(l.Extend(ctx), l.Release(ctx), lk.Close(ctx)); err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

func hold(ctx context.Context, lk *redlock.Locker) error {
	l, err := lk.Acquire(ctx, "x", &redlock.AcquireOptions{TTL: time.Second})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	last := time.Now() // before the line that has us stopped
	fmt.Println(l.Token())
	for ; ; last = time.Now() {
		<-ticker.C
		if time.Since(last) < 2*time.Second {
			continue
		}
		err := l.Extend(ctx) // the first call after the pause
		fmt.Println(errors.Is(err, redlock.ErrLost), l.Context().Err() != nil, time.Until(l.Deadline()) < 0)
		return nil
	}
}

func keep(ctx context.Context, lk *redlock.Locker) error {
	l, err := lk.Acquire(ctx, "x", &redlock.AcquireOptions{TTL: forgetTTL})
	if err != nil {
		return err
	}
	fmt.Println(uint64(l.Token()), int64(instant()+time.Until(l.Deadline())))
	<-l.Context().Done()
	fmt.Println(errors.Is(context.Cause(l.Context()), redlock.ErrLost))
	return nil
}

func crowd(ctx context.Context, lk *redlock.Locker) error {
	n, err := strconv.Atoi(os.Getenv(waitersEnv))
	if err != nil {
		return err
	}
	served := make(chan error, n)
	for range n {
		go func() {
			l, err := lk.Acquire(ctx, "x", nil)
			if err == nil {
				err = l.Release(ctx)
			}
			served <- err
		}()
	}
	for range n {
		if err := <-served; err != nil {
			return err
		}
	}
	fmt.Println("served")
	return lk.Close(ctx)
}

// instant is CLOCK_MONOTONIC, which is the same for all processes.
func instant() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

func resumeAndRelease(ctx context.Context, lk *redlock.Locker, handle string) error {
	l, err := lk.Resume(ctx, handle, nil)
	if err != nil {
		return err
	}
	fmt.Println(l.Token())
	if err := l.Release(ctx); err != nil {
		return err
	}
	return lk.Close(ctx)
}

// spawn starts another process and returns what it prints. It does not outlive
// the test.
func (ns *nodes) spawn(role string, env ...string) (*exec.Cmd, *bufio.Reader) {
	ns.t.Helper()
	return ns.spawnWith(nil, role, env...)
}

// spawnFed is spawn with an input for the process, which is to end when that does.
func (ns *nodes) spawnFed(role string, env ...string) (io.Closer, *bufio.Reader) {
	ns.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		ns.t.Fatal(err)
	}
	_, out := ns.spawnWith(r, role, env...)
	_ = r.Close() // the process has its own
	ns.t.Cleanup(func() { _ = w.Close() })
	return w, out
}

func (ns *nodes) spawnWith(in *os.File, role string, env ...string) (*exec.Cmd, *bufio.Reader) {
	ns.t.Helper()
	self, err := os.Executable()
	if err != nil {
		ns.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, nodesEnv+"="+strings.Join(ns.urls(), ","))
	cmd.Env = append(cmd.Env, env...)
	if in != nil {
		cmd.Stdin = in
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		ns.t.Fatal(err)
	}
	ns.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

func line(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("other process: %q, %v", text, err)
	}
	return strings.TrimSpace(text)
}

// grant is what one acquisition looked like: instants on CLOCK_MONOTONIC, which is
// the same for all processes.
type grant struct {
	called, returned time.Duration
	name             string
	token            uint64
	byClock          bool
}

// countedNames are the names that roleCount takes.
const countedNames = 3

func count(ctx context.Context, lk *redlock.Locker) error {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for i := os.Getpid(); ; i++ {
		select {
		case <-ended:
			return lk.Close(ctx)
		default:
		}
		g := grant{name: fmt.Sprint("x", i%countedNames), called: instant()}
		l, err := lk.Acquire(ctx, g.name, &redlock.AcquireOptions{TTL: time.Second, Wait: 5 * time.Second})
		g.returned = instant()
		if err != nil {
			if errors.Is(err, redlock.ErrHeld) || errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrQuarantined) {
				continue
			}
			return err
		}
		fmt.Println(int64(g.called), int64(g.returned), g.name, uint64(l.Token()), l.TokenByClock())
		pass(10 * time.Millisecond) // others have a processor, too
		_ = l.Release(ctx)          // a node may be gone that had it
	}
}
