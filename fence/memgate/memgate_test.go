package memgate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"example.com/redlock/fence"
	"example.com/redlock/fence/internal/gatemodel"
	"example.com/redlock/fence/memgate"
)

func get(g *memgate.Writer[int]) (n int, err error) {
	err = g.Do(context.Background(), func(v *int) error {
		n = *v
		return nil
	})
	return n, err
}

func set(g *memgate.Writer[int], n int) error {
	return g.Do(context.Background(), func(v *int) error {
		*v = n
		return nil
	})
}

// TestB26LateWriteIsRefused: A reads and is paused; B, who has the lock now,
// opens the gate, reads and writes; A's write comes too late.
func TestB26LateWriteIsRefused(t *testing.T) {
	ctx := context.Background()
	g := memgate.New(10)
	a, err := g.Open(ctx, 5)
	if err != nil {
		t.Fatal(err)
	}
	read, err := get(a)
	if err != nil {
		t.Fatal(err)
	}

	b, err := g.Open(ctx, 6)
	if err != nil {
		t.Fatal(err)
	}
	// Not yet written to: opening alone stops A, or B would read 10 and write
	// over what A writes now.
	if err := set(a, read-1); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late write: %v", err)
	}
	if _, err := get(a); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late read: %v", err)
	}
	n, err := get(b)
	if err == nil {
		err = set(b, n-3)
	}
	if n, _ := get(b); err != nil || n != 7 {
		t.Errorf("%d, %v; want 7", n, err)
	}
	if _, err := g.Open(ctx, 5); !errors.Is(err, fence.ErrStale) {
		t.Errorf("late open: %v", err)
	}
}

// TestB26WithoutGateAnUpdateIsLost is what the gate is for: the same story
// without it.
func TestB26WithoutGateAnUpdateIsLost(t *testing.T) {
	stock := 10
	set := func(n int) { stock = n }
	a := stock // A reads and is paused
	b := stock // B, who has the lock now, reads
	set(b - 3)
	set(a - 1) // A wakes up
	if stock != 9 {
		t.Errorf("%d: B's update was not lost", stock)
	}
}

func TestAgainstModel(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(10) {
		g := memgate.New("")
		gatemodel.Run(t, seed, 2000, func(c fence.Claim) (*gatemodel.Opened, error) {
			var value string
			if c.Shared {
				r, err := g.OpenShared(ctx, c.Token)
				return &gatemodel.Opened{Read: func() (string, error) {
					err := r.Do(ctx, func(v string) error { value = v; return nil })
					return value, err
				}}, err
			}
			w, err := g.Open(ctx, c.Token)
			return &gatemodel.Opened{
				Read: func() (string, error) {
					err := w.Do(ctx, func(v *string) error { value = *v; return nil })
					return value, err
				},
				Write: func(s string) error {
					return w.Do(ctx, func(v *string) error { *v = s; return nil })
				},
			}, err
		})
	}
}

// TestNewHolderWaitsForWorkUnderWay: B may open while A's work runs, but reads
// only after it; A's next work is refused.
func TestNewHolderWaitsForWorkUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		g := memgate.New(10)
		a, err := g.Open(ctx, 5)
		if err != nil {
			t.Fatal(err)
		}
		finish := make(chan struct{})
		go func() {
			if err := a.Do(ctx, func(v *int) error {
				<-finish
				*v--
				return nil
			}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		b, err := g.Open(ctx, 6)
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan int, 1)
		go func() {
			n, err := get(b)
			if err != nil {
				t.Error(err)
			}
			read <- n
		}()
		synctest.Wait()
		if len(read) != 0 {
			t.Error("B read beside A's work")
		}
		if err := set(a, 1); !errors.Is(err, fence.ErrStale) {
			t.Errorf("A's next work: %v", err)
		}
		close(finish)
		if n := <-read; n != 9 {
			t.Errorf("B read %d, not what A had written", n)
		}
	})
}

func TestReadersShareAndWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memgate.New(10)
		late, err1 := g.OpenShared(t.Context(), 5)
		w, err2 := g.Open(t.Context(), 6)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if err := late.Do(t.Context(), func(int) error { return nil }); !errors.Is(err, fence.ErrStale) {
			t.Error("a reader goes on under a writer:", err)
		}
		r1, err1 := g.OpenShared(t.Context(), 8)
		r2, err2 := g.OpenShared(t.Context(), 7)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		err := r1.Do(t.Context(), func(int) error {
			return r2.Do(t.Context(), func(n int) error { // beside r1
				if n != 10 {
					t.Error(n)
				}
				var err error
				if w, err = g.Open(t.Context(), 9); err != nil {
					return err
				}
				ctx, cancel := context.WithCancel(t.Context())
				waited := make(chan error, 1)
				go func() { waited <- w.Do(ctx, func(*int) error { return nil }) }()
				synctest.Wait()
				if len(waited) != 0 {
					t.Error("the writer did not wait for the readers")
				}
				cancel()
				return wantIs(<-waited, context.Canceled)
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestOpenWithContextThatHasEnded: it is refused, and the gate is as before.
func TestOpenWithContextThatHasEnded(t *testing.T) {
	g := memgate.New(10)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err1 := g.Open(ended, 6)
	_, err2 := g.OpenShared(ended, 6)
	if !errors.Is(err1, context.Canceled) || !errors.Is(err2, context.Canceled) {
		t.Error(err1, err2)
	}
	if _, err := g.Open(t.Context(), 5); err != nil {
		t.Error(err)
	}
}

func wantIs(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return errors.Join(errors.New("not "+target.Error()), err)
}
