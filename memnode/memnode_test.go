package memnode

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/internal/node"
	"example.com/redlock/quorum"
)

var _ quorum.Node = (*Node)(nil)

var (
	keys = node.Keyspace{Namespace: "redlock"}
	conf = node.Conf{Protocol: node.ProtocolVersion, N: 1, Q: 1, MaxTTL: 30_000}
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// started returns a node that has been introduced, and a way to send it one
// operation.
func started(t *testing.T) (*Node, func(context.Context, node.Op) (node.Answer, error)) {
	t.Helper()
	n := New("a:6379/0")
	h, err := n.Hello(t.Context(), node.Hello{Keys: keys, Conf: conf, Intent: node.Declare})
	if err != nil || h.Standing != node.StandingNew {
		t.Fatal(h, err)
	}
	return n, func(ctx context.Context, op node.Op) (node.Answer, error) {
		op.Name = "x"
		r, err := n.Call(ctx, &node.Call{Keys: keys, Guard: h.Guard, MaxTTL: conf.MaxTTL, Assign: 2000, Life: 5000, Ops: []node.Op{op}})
		if err != nil {
			return node.Answer{}, err
		}
		return r.Answers[0], nil
	}
}

func acquire(id string) node.Op { return node.Op{Kind: node.Acquire, ID: id, TTL: 10_000} }

func wantCode(t *testing.T, a node.Answer, err error, want node.Code) {
	t.Helper()
	if err != nil || a.Code != want {
		t.Fatalf("got %v, %v, want %v", a, err, want)
	}
}

func wantError(t *testing.T, err, want error, sent bool) {
	t.Helper()
	var call *node.CallError
	if !errors.As(err, &call) || !errors.Is(err, want) || call.Sent != sent {
		t.Fatalf("got %v (%+v), want %v, sent %v", err, call, want, sent)
	}
}

// within calls fn with a ctx that ends after d.
func within(t *testing.T, d time.Duration, fn func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	fn(ctx)
}

func TestFrozenCallsRunWhenThawed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, do := started(t)
		n.Freeze()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			within(t, time.Second, func(ctx context.Context) {
				_, err := do(ctx, acquire(idA))
				wantError(t, err, context.DeadlineExceeded, true)
			})
		})
		synctest.Wait()
		waiting.Go(func() {
			a, err := do(t.Context(), acquire(idB))
			wantCode(t, a, err, node.Held) // behind the one that gave up
		})
		time.Sleep(2 * time.Second)
		n.Thaw()
		waiting.Wait()
		a, err := do(t.Context(), node.Op{Kind: node.Release, ID: idA})
		wantCode(t, a, err, node.Done)
	})
}

func TestDelayKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, do := started(t)
		n.Delay(50 * time.Millisecond)
		begin := time.Now()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			a, err := do(t.Context(), acquire(idA))
			wantCode(t, a, err, node.Granted)
			if took := time.Since(begin); took != 50*time.Millisecond {
				t.Error(took)
			}
		})
		synctest.Wait()
		n.Delay(0)
		a, err := do(t.Context(), acquire(idB))
		wantCode(t, a, err, node.Held)
		waiting.Wait()
	})
}

func TestDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, do := started(t)
		n.Freeze()
		failed := make(chan error, 1)
		go func() {
			_, err := do(t.Context(), acquire(idA))
			failed <- err
		}()
		synctest.Wait()
		n.Down(true)
		wantError(t, <-failed, ErrReset, true)
		_, err := do(t.Context(), acquire(idB))
		wantError(t, err, ErrDown, false)
		n.Down(false)
		n.Thaw()
		a, err := do(t.Context(), acquire(idB))
		wantCode(t, a, err, node.Granted)
	})
}

func TestDroppedRepliesAreCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, do := started(t)
		n.DropReplies(true)
		within(t, time.Second, func(ctx context.Context) {
			_, err := do(ctx, acquire(idA))
			wantError(t, err, context.DeadlineExceeded, true)
		})
		n.DropReplies(false)
		a, err := do(t.Context(), acquire(idB))
		wantCode(t, a, err, node.Held)
	})
}

func TestRestart(t *testing.T) {
	for _, keep := range []bool{false, true} {
		n, do := started(t)
		a, err := do(t.Context(), acquire(idA))
		wantCode(t, a, err, node.Granted)
		n.Restart(keep)
		a, err = do(t.Context(), acquire(idA))
		wantCode(t, a, err, node.NoGuard)
		_, _, ok := n.Get(keys.Lease("x"))
		if ok != keep {
			t.Errorf("keep %v, found %v", keep, ok)
		}
	}
}

func TestWipeAndMeddling(t *testing.T) {
	n, do := started(t)
	n.Set(keys.Lease("x"), "foreign", time.Minute)
	a, err := do(t.Context(), acquire(idA))
	wantCode(t, a, err, node.Foreign)
	n.Delete(keys.Lease("x"))
	a, err = do(t.Context(), acquire(idA))
	wantCode(t, a, err, node.Granted)
	n.Wipe()
	a, err = do(t.Context(), acquire(idB))
	wantCode(t, a, err, node.NoGuard)
}

func TestShiftedClockExpiresLeasesForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, do := started(t)
		a, err := do(t.Context(), acquire(idA))
		wantCode(t, a, err, node.Granted)
		n.ShiftClock(11 * time.Second)
		n.ShiftClock(-11 * time.Second)
		a, err = do(t.Context(), node.Op{Kind: node.Inspect})
		wantCode(t, a, err, node.Absent)

		a, err = do(t.Context(), acquire(idA))
		wantCode(t, a, err, node.Granted)
		n.ShiftClock(-time.Hour)
		a, err = do(t.Context(), acquire(idB))
		if wantCode(t, a, err, node.Held); a.Remaining != conf.MaxTTL {
			t.Errorf("%d ms left, want them cut to %d", a.Remaining, conf.MaxTTL)
		}
	})
}

func TestCloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, do := started(t)
		n.DropReplies(true)
		ended := make(chan error, 1)
		go func() {
			_, err := do(t.Context(), acquire(idA))
			ended <- err
		}()
		synctest.Wait()
		n.Close()
		wantError(t, <-ended, ErrClosed, true)
		_, err := do(t.Context(), acquire(idA))
		wantError(t, err, ErrClosed, false)
	})
}

func TestManyCallers(t *testing.T) {
	n, do := started(t)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 100 {
				within(t, time.Millisecond, func(ctx context.Context) {
					do(ctx, acquire(idA))
					n.Delay(time.Microsecond)
					do(ctx, node.Op{Kind: node.Release, ID: idA})
				})
			}
		})
	}
	for range 20 {
		n.Freeze()
		n.ShiftClock(time.Millisecond)
		n.Thaw()
	}
	callers.Wait()
}
