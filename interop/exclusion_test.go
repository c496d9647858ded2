package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/redlock"
)

func TestTheSecondIsRefusedWhileTheFirstHolds(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		eachPair(t, ns, func(t *testing.T, name string, first, second kind) {
			a, b := ns.open(t, first), ns.open(t, second)
			h := mustTry(t, a, name, longTTL)
			for range 3 { // a refused attempt must not loosen what is held
				if _, err := b.try(name, longTTL); !errors.Is(err, errRefused) {
					t.Errorf("while it is held: %v, want it refused", err)
				}
			}
			if err := h.extend(); err != nil {
				t.Errorf("the holder cannot extend after others tried: %v", err)
			}
			mustRelease(t, h)
			g := waitFor(t, b, name)
			if _, err := a.try(name, longTTL); !errors.Is(err, errRefused) {
				t.Errorf("the first, while the second holds: %v, want it refused", err)
			}
			mustRelease(t, g)
		})
	})
}

// waitFor waits until the name is had. A release has confirmed on a quorum of
// nodes only, so that one attempt just after it may meet what is left of it.
func waitFor(t *testing.T, c client, name string) held {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := c.wait(ctx, name, longTTL)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return h
}

func TestTheSecondWaitsUntilTheFirstReleases(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		eachPair(t, ns, func(t *testing.T, name string, first, second kind) {
			a, b := ns.open(t, first), ns.open(t, second)
			h := mustTry(t, a, name, longTTL)
			had := inBackground(b, name)
			select {
			case got := <-had:
				t.Fatalf("had while it was held: %v", got.err)
			case <-time.After(200 * time.Millisecond):
			}
			released, err := h.release()
			if err != nil {
				t.Fatal(err)
			}
			got := <-had
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.h.from() < released {
				t.Errorf("had %v before the release", time.Duration(released-got.h.from()))
			}
			if late := time.Duration(got.h.from() - released); late > slack {
				t.Errorf("had %v after the release", late)
			}
			mustRelease(t, got.h)
		})
	})
}

type outcome struct {
	h   held
	err error
}

// inBackground waits for the name.
func inBackground(c client, name string) <-chan outcome {
	had := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		h, err := c.wait(ctx, name, longTTL)
		had <- outcome{h, err}
	}()
	return had
}

func TestTheSecondWaitsUntilTheFirstHasExpired(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		eachPair(t, ns, func(t *testing.T, name string, first, second kind) {
			t.Parallel()
			a, b := ns.open(t, first), ns.open(t, second)
			h := mustTry(t, a, name, shortTTL)
			got := <-inBackground(b, name)
			if got.err != nil {
				t.Fatal(got.err)
			}
			checkTurn(t, h.until(), h.from(), got.h.from())
			if _, err := h.release(); err == nil && first.name == ours.name {
				t.Error("the release of a lost lease succeeded")
			}
			mustRelease(t, got.h)
		})
	})
}

// checkTurn fails unless the next holder came after the last one's time, which
// began at from at the latest and was bounded by shortTTL, but not much.
func checkTurn(t *testing.T, until, from, next instant) {
	t.Helper()
	if next < until {
		t.Errorf("had %v before the time of the first was over", time.Duration(until-next))
	}
	if late := time.Duration(next - from.add(shortTTL)); late > slack {
		t.Errorf("had %v after the TTL of the first was over", late)
	}
}

func TestTheLockOfACrashedHolderEndsAfterItsTTL(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		eachPair(t, ns, func(t *testing.T, name string, first, second kind) {
			t.Parallel()
			b := ns.open(t, second)
			until, killed := crashHolding(t, ns, first, name)
			got := <-inBackground(b, name)
			if got.err != nil {
				t.Fatal(got.err)
			}
			checkTurn(t, until, killed, got.h.from())
			mustRelease(t, got.h)
		})
	})
}

// crashHolding lets a process take the name and kills it with -9. It returns
// until when that process might have acted, and when it was dead.
func crashHolding(t *testing.T, ns *nodes, k kind, name string) (until, killed instant) {
	t.Helper()
	if k.name == nodejs.name {
		c := ns.open(t, k).(*nodeClient)
		h := mustTry(t, c, name, shortTTL)
		c.kill()
		return h.until(), now()
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holderEnv+"="+strings.Join(append([]string{k.name, name}, ns.addrs()...), ","))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	if err != nil {
		t.Fatalf("the holder said %q: %v", line, err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return instant(n), now()
}

// holderEnv makes the test binary a process that takes a name, says until when
// it holds it, and waits to be killed. It has the kind, the name and the nodes.
const holderEnv = "REDLOCK_INTEROP_HOLDER"

func holdUntilKilled() int {
	args := strings.Split(os.Getenv(holderEnv), ",")
	var h held
	var err error
	if args[0] == ours.name {
		var lk *redlock.Locker
		if lk, err = redlock.Open(context.Background(), args[2:], options()); err == nil {
			_, err = lk.Init(context.Background(), nil)
		}
		if err == nil {
			// Renewed, as a lease is by default: renewal must end with the process.
			var l *redlock.Lease
			if l, err = lk.Acquire(context.Background(), args[1], &redlock.AcquireOptions{TTL: shortTTL}); err == nil {
				h = &ourLease{l, now()}
			}
		}
	} else {
		h, err = newRedsync(args[2:]).try(args[1], shortTTL)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		return 1
	}
	fmt.Println(int64(h.until()))
	<-time.After(patience) // if nobody does, it ends by itself
	return 1
}
