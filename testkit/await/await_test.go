package await_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.com/redlock/testkit/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTrueReturnsOnceTheConditionHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ready atomic.Bool
		start := time.Now()
		time.AfterFunc(time.Second, func() { ready.Store(true) })
		await.True(t, time.Minute, "ready", ready.Load)
		if late := time.Since(start) - time.Second; late < 0 || late > 20*time.Millisecond {
			t.Errorf("returned %v after the condition became true", late)
		}
	})
}

func TestTrueFailsWithTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{TB: t}
		start := time.Now()
		looks := 0
		func() {
			defer func() { _ = recover() }()
			await.True(rec, 3*time.Second, "the sky falls", func() bool { looks++; return false })
		}()
		if want := "not within 3s: the sky falls"; rec.message != want {
			t.Errorf("failed with %q, want %q", rec.message, want)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("gave up after %v, want 3s", took)
		}
		if looks < 100 {
			t.Errorf("looked %d times in 3s", looks)
		}
	})
}

// recorder keeps the message of Fatalf and leaves by panic, for the caller to
// recover.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	panic(r.message)
}
