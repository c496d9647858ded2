package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"example.com/redlock"
	"example.com/redlock/locktest"
)

// Whoever waits under a lease for its own name would wait for itself: an upgrade of a
// shared lease, a helper that takes the lock which its caller has. It is told so at once.
func TestNestedAcquireIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, _ := locktest.New(t, 3, nil)
		shared := &redlock.AcquireOptions{Mode: redlock.Shared}
		nested := func(what string, ctx context.Context, name string, o *redlock.AcquireOptions) {
			t.Helper()
			if l, err := lk.Acquire(ctx, name, o); !errors.Is(err, redlock.ErrNested) || l != nil {
				t.Errorf("%s: %v, %v", what, l, err)
			}
		}
		free := func(what string, ctx context.Context, name string) {
			t.Helper()
			l, err := lk.Acquire(ctx, name, nil)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := l.Release(ctx); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		err := lk.Do(t.Context(), "a", shared, func(ctx context.Context, a *redlock.Lease) error {
			nested("upgrade in a body", ctx, "a", nil)
			nested("reader in a reader", ctx, "a", shared)
			nested("upgrade under the lease", a.Context(), "a", nil)
			free("another name", ctx, "b")
			return lk.Do(ctx, "b", nil, func(ctx context.Context, b *redlock.Lease) error {
				nested("two deep", ctx, "a", nil)
				if _, err := lk.AcquireAll(ctx, []string{"c", "b"}, nil); !errors.Is(err, redlock.ErrNested) {
					t.Errorf("one of a set: %v", err)
				}
				if _, err := lk.TryAcquire(ctx, "b", nil); !errors.Is(err, redlock.ErrHeld) {
					t.Errorf("who does not wait: %v", err)
				}
				ctx = context.WithoutCancel(ctx)
				if err := b.Release(ctx); err != nil {
					t.Errorf("release: %v", err)
				}
				free("once it is given back", ctx, "b")
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		set, err := lk.AcquireAll(t.Context(), []string{"y", "x"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		nested("under a set", set.Context(), "x", nil)
		if err := set.Release(t.Context()); err != nil {
			t.Error(err)
		}
		free("after the set", context.WithoutCancel(set.Context()), "x")
	})
}
