package naive_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/redlock/testkit/embedded"
	"example.com/redlock/testkit/naive"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

func TestNoneLetsEverybodyIn(t *testing.T) {
	for range 2 {
		if _, err := (naive.None{}).Lock(t.Context(), "n", ttl); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSetNXExcludesUntilUnlocked(t *testing.T) {
	lock, _ := setNX(t)
	unlock := mustLock(t, lock)
	dead, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := lock.Lock(dead, "n", ttl); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock: %v", err)
	}
	if err := unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLock(t, lock)
}

// The fault that makes it a canary.
func TestALateUnlockFreesTheNextHolder(t *testing.T) {
	lock, server := setNX(t)
	late := mustLock(t, lock)
	server.SetOffset(ttl)
	mustLock(t, lock)
	if err := late(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLock(t, lock) // the second of two at a time
}

func TestSetNXReportsADeadServer(t *testing.T) {
	lock, server := setNX(t)
	_ = server.Close()
	if _, err := lock.Lock(t.Context(), "n", ttl); err == nil {
		t.Error("locked on a dead server")
	}
}

func setNX(t *testing.T) (naive.Locker, *embedded.Server) {
	t.Helper()
	s, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return naive.SetNX{Addr: s.Addr()}, s
}

func mustLock(t *testing.T, l naive.Locker) func(context.Context) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	unlock, err := l.Lock(ctx, "n", ttl)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}
