package interop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/redlock"
)

// foreignKeys are keys that others may have under a name that we are asked to
// lock. None of them has the exact form of a lease of ours.
var foreignKeys = []struct {
	name    string
	command []any // with NAME in place of the key
	endless bool  // has no expiry, so that waiting for it is no use
}{
	{"of redsync or node-redlock", []any{"SET", "NAME", "q83vASNFZ4mrze8BI0VniQ==", "PX", "20000"}, false},
	{"longer than MaxTTL", []any{"SET", "NAME", "some value", "PX", "3600000"}, false},
	{"without expiry", []any{"SET", "NAME", "some value"}, true},
	{"empty", []any{"SET", "NAME", "", "PX", "20000"}, false},
	{"a number", []any{"SET", "NAME", "42"}, true},
	{"like a lease, without a number", []any{"SET", "NAME", strings.Repeat("a", 32) + ":", "PX", "3600000"}, false},
	{"like a lease, with more after it", []any{"SET", "NAME", strings.Repeat("a", 32) + ":7x", "PX", "3600000"}, false},
	{"like a lease, in capitals", []any{"SET", "NAME", strings.Repeat("A", 32) + ":7", "PX", "3600000"}, false},
	{"like a lease, one digit short", []any{"SET", "NAME", strings.Repeat("a", 31) + ":7", "PX", "3600000"}, false},
	{"like a broken lease", []any{"SET", "NAME", "~broken by others", "PX", "3600000"}, false},
	{"a hash", []any{"HSET", "NAME", "field", "value"}, true},
	{"a list", []any{"RPUSH", "NAME", "a", "b"}, true},
	{"a sorted set", []any{"ZADD", "NAME", "1", "a"}, true},
}

// meddle does to a name whatever a client of ours can be asked to do with it,
// and calls after for each.
func meddle(t *testing.T, lk *redlock.Locker, name string, after func(what string, err error)) {
	t.Helper()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	ctx := t.Context()
	refused := func(what string, l *redlock.Lease, err error) {
		if err == nil {
			t.Errorf("%s: taken with token %d", what, l.Token())
		}
		after(what, err)
	}
	l, err := lk.TryAcquire(ctx, name, nil)
	refused("TryAcquire", l, err)
	l, err = lk.TryAcquire(ctx, name, &redlock.AcquireOptions{TTL: shortTTL, Owner: "somebody"})
	refused("TryAcquire with an owner", l, err)
	l, err = lk.Acquire(short, name, nil)
	refused("Acquire", l, err)
	_, err = lk.Inspect(ctx, name)
	after("Inspect", err)
	after("Break", lk.Break(ctx, name, nil))
	after("Break now", lk.Break(ctx, name, &redlock.BreakOptions{Now: true}))
}

func TestForeignKeysAreNeverTouched(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		lk := ns.openLocker(t)
		for _, foreign := range foreignKeys {
			t.Run(foreign.name, func(t *testing.T) {
				name := "foreign/" + foreign.name
				for i := range ns.servers {
					command := append([]any(nil), foreign.command...)
					command[1] = name
					ns.do(i, command...)
				}
				before := ns.look(name)
				meddle(t, lk, name, func(what string, err error) {
					ns.same(t, name, what, before)
					checkForeign(t, what, err, foreign.endless)
				})
			})
		}
	})
}

// checkForeign checks what our client says about a key that is not its own.
func checkForeign(t *testing.T, what string, err error, endless bool) {
	t.Helper()
	switch {
	case what == "Inspect":
		if err != nil {
			t.Errorf("Inspect: %v", err)
		}
	case strings.HasPrefix(what, "Break"), endless:
		if !errors.Is(err, redlock.ErrForeignKey) {
			t.Errorf("%s: %v, want ErrForeignKey", what, err)
		}
	case strings.HasPrefix(what, "TryAcquire"):
		if !errors.Is(err, redlock.ErrHeld) {
			t.Errorf("%s: %v, want ErrHeld", what, err)
		}
	default:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want the end of its own wait", what, err)
		}
	}
}

func TestLocksOfRivalsAreNeverTouched(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		lk := ns.openLocker(t)
		for _, rival := range rivals {
			t.Run(rival.name, func(t *testing.T) {
				name := "held by " + rival.name
				h := mustTry(t, ns.open(t, rival), name, longTTL)
				before := ns.lookAtAll(t, name)
				meddle(t, lk, name, func(what string, err error) {
					ns.same(t, name, what, before)
					checkForeign(t, what, err, false)
				})
				st, err := lk.Inspect(t.Context(), name)
				if err != nil || !st.Held || !st.Foreign || st.Token != 0 || st.Remaining <= 0 || st.Remaining > longTTL {
					t.Errorf("Inspect: %+v, %v; want it held by another kind of client", st, err)
				}
				mustRelease(t, h)
			})
		}
	})
}

// TestARivalsLockOutlivesWhatIsLeftOfOurs: our lease is gone, a rival holds the
// name, and our client, which knows nothing of it, goes on.
func TestARivalsLockOutlivesWhatIsLeftOfOurs(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		lk := ns.openLocker(t)
		for _, rival := range rivals {
			for what, act := range map[string]func(*redlock.Lease) error{
				"Extend":  func(l *redlock.Lease) error { return l.Extend(t.Context()) },
				"Release": func(l *redlock.Lease) error { return l.Release(t.Context()) },
				"Resume": func(l *redlock.Lease) error {
					handle, err := l.Handle()
					if err != nil {
						t.Fatal(err)
					}
					_, err = lk.Resume(t.Context(), handle, nil)
					return err
				},
			} {
				t.Run(rival.name+" "+what, func(t *testing.T) {
					name := what + " before " + rival.name
					l, err := lk.Acquire(t.Context(), name, &redlock.AcquireOptions{NoRenew: true})
					if err != nil {
						t.Fatal(err)
					}
					h := inherit(t, ns, ns.open(t, rival), name)
					before := ns.lookAtAll(t, name)
					if err := act(l); !errors.Is(err, redlock.ErrLost) {
						t.Errorf("%s: %v, want ErrLost", what, err)
					}
					ns.same(t, name, what, before)
					mustRelease(t, h)
				})
			}
		}
	})
}

// inherit takes a name away from its holder, behind its back, and gives it to c
// on all nodes. A straggler of the holder's own grants may still be on its way
// to some node, and of c's as well: then it tries again.
func inherit(t *testing.T, ns *nodes, c client, name string) held {
	t.Helper()
	for range 100 {
		ns.forget(name)
		h, err := c.try(name, longTTL)
		if err != nil {
			continue
		}
		for range 100 {
			if same(ns.look(name)) {
				return h
			}
		}
		_, _ = h.release() // it does not have all nodes
	}
	t.Fatalf("nobody gets %s on all nodes", name)
	return nil
}

// same tells whether all nodes have the same value.
func same(keys []key) bool {
	for _, k := range keys {
		if k.dump == nil || k.dump != keys[0].dump {
			return false
		}
	}
	return true
}

// TestOurLeaseOutlivesWhatIsLeftOfARivals is the same the other way round.
func TestOurLeaseOutlivesWhatIsLeftOfARivals(t *testing.T) {
	onEachSize(t, func(t *testing.T, ns *nodes) {
		for _, rival := range rivals {
			for what, act := range map[string]func(held) error{
				"extend": held.extend,
				"release": func(h held) error {
					_, err := h.release()
					return err
				},
			} {
				t.Run(rival.name+" "+what, func(t *testing.T) {
					name := what + " of " + rival.name
					stale := mustTry(t, ns.open(t, rival), name, longTTL)
					h := inherit(t, ns, ns.open(t, ours), name)
					before := ns.lookAtAll(t, name)
					if err := act(stale); err == nil {
						t.Errorf("%s of what is lost succeeded", what)
					}
					ns.same(t, name, what, before)
					if l := h.(*ourLease).l; l.Context().Err() != nil {
						t.Errorf("our lease ended: %v", context.Cause(l.Context()))
					}
					if err := h.extend(); err != nil {
						t.Errorf("our lease cannot be extended: %v", err)
					}
					mustRelease(t, h)
				})
			}
		}
	})
}
