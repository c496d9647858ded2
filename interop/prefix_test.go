package interop

import (
	"errors"
	"strings"
	"testing"

	goredsync "github.com/go-redsync/redsync/v4"

	"example.com/redlock"
)

// TestB104AnOwnerIsNeverTakenForAnotherByAPrefix: a client that
// compares only as many bytes as its own token has takes the lock of another
// whose token begins with them.
func TestB104AnOwnerIsNeverTakenForAnotherByAPrefix(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		lk := ns.openLocker(t)
		// Others hold the name under a value that begins like ours, or that ours
		// begins with, after our lease has gone: our client must not take it for it.
		for what, like := range map[string]func(id, value string) string{
			"a part of our id":           func(id, _ string) string { return id[:31] },
			"our id":                     func(id, _ string) string { return id },
			"our id and no number":       func(id, _ string) string { return id + ":" },
			"our id, continued":          func(id, _ string) string { return id + "0:1" },
			"our id, another separator":  func(id, _ string) string { return id + ";1" },
			"our value, one byte before": func(_, value string) string { return " " + value },
		} {
			name := "ours/" + what
			l, err := lk.Acquire(t.Context(), name, &redlock.AcquireOptions{Owner: "a", NoRenew: true})
			if err != nil {
				t.Fatal(err)
			}
			value := ns.stored(t, name)
			id, _, _ := strings.Cut(value, ":")
			c := newRedsync(ns.addrs(), goredsync.WithGenValueFunc(func() (string, error) { return like(id, value), nil }))
			t.Cleanup(c.close)
			theirs := inherit(t, ns, c, name)
			before := ns.lookAtAll(t, name)
			if err := l.Extend(t.Context()); !errors.Is(err, redlock.ErrLost) {
				t.Errorf("%s: extend: %v, want ErrLost", what, err)
			}
			if err := l.Release(t.Context()); !errors.Is(err, redlock.ErrLost) {
				t.Errorf("%s: release: %v, want ErrLost", what, err)
			}
			ns.same(t, name, "extend and release", before)
			mustRelease(t, theirs)
		}
	})
}

// stored returns the value of a name on a node that has it: a lease needs a
// quorum only.
func (ns *nodes) stored(t *testing.T, name string) string {
	t.Helper()
	for i := range ns.servers {
		if value, ok := ns.do(i, "GET", name).(string); ok {
			return value
		}
	}
	t.Fatalf("no node has %s", name)
	return ""
}

// TestAnOwnerLabelIsNoOwnership: two clients of ours with the same label, or
// with one that begins with the other, exclude each other.
func TestAnOwnerLabelIsNoOwnership(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		lk, other := ns.openLocker(t), ns.openLocker(t)
		l, err := lk.Acquire(t.Context(), "labelled", &redlock.AcquireOptions{Owner: "ab"})
		if err != nil {
			t.Fatal(err)
		}
		for _, label := range []string{"", "a", "ab", "abc"} {
			for _, from := range []*redlock.Locker{lk, other} {
				_, err := from.TryAcquire(t.Context(), "labelled", &redlock.AcquireOptions{Owner: label})
				if !errors.Is(err, redlock.ErrHeld) {
					t.Errorf("owner %q while owner \"ab\" holds: %v, want ErrHeld", label, err)
				}
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
