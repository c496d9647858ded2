package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/testkit/await"
)

// wait is a caller that stands in line.
type wait struct {
	began time.Time
	took  time.Duration
	lease *redlock.Lease
	err   error
	done  chan struct{}
}

// standInLine has a caller wait for a name that is held, and returns once it does.
func standInLine(t *testing.T, lk *redlock.Locker, name string, o redlock.AcquireOptions) *wait {
	t.Helper()
	w, stands := &wait{began: time.Now(), done: make(chan struct{})}, make(chan struct{}, 1)
	o.OnWait = func(e redlock.Wait) {
		if e.Position >= 0 {
			select {
			case stands <- struct{}{}:
			default:
			}
		}
	}
	go func() {
		defer close(w.done)
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		w.lease, w.err = lk.Acquire(ctx, name, &o)
		w.took = time.Since(w.began)
	}()
	select {
	case <-stands:
	case <-w.done:
		t.Fatalf("it does not wait: %v", w.err)
	case <-time.After(patience):
		t.Fatal("it does not stand in line")
	}
	return w
}

// want waits for a lease.
func (w *wait) want(t *testing.T, within time.Duration) *redlock.Lease {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(within):
		t.Fatalf("waits for longer than %v", within)
	}
	if w.err != nil {
		t.Fatal(w.err)
	}
	return w.lease
}

// asUser makes a user with all rights on all nodes, and returns their URLs for it.
func (ns *nodes) asUser(name string) (urls []string) {
	for i, s := range ns.servers {
		ns.text(i, "ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all")
		urls = append(urls, "redis://"+name+":pw@"+s.Addr())
	}
	return urls
}

// deny takes rights from a user on all nodes.
func (ns *nodes) deny(user string, rights ...string) {
	for i := range ns.servers {
		ns.text(i, append([]string{"ACL", "SETUSER", user}, rights...)...)
	}
}

// TestALostRightToPublish: nobody is told of what the holder gives back, and those that
// wait find it by their heartbeats. From then on they tell each other.
func TestALostRightToPublish(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	urls := ns.asUser("u")
	lk := ns.open(nil)
	held := take(t, open(t, urls, nil), "x", nil)
	var waits []*wait
	for range 3 {
		waits = append(waits, standInLine(t, lk, "x", redlock.AcquireOptions{}))
	}
	ns.deny("u", "-publish")
	release(t, held)
	for left := len(waits); left > 0; left-- {
		await.True(t, time.Second+slack, fmt.Sprintf("one of %d is served", left), func() bool {
			for i, w := range waits {
				select {
				case <-w.done:
					waits = append(waits[:i:i], waits[i+1:]...)
					release(t, w.want(t, slack))
					return true
				default:
				}
			}
			return false
		})
	}
}

// TestALineThatCannotBeUsed: where nobody may publish, or listen, any more, a caller
// that waits is served by its heartbeats or learns, soon, that it has not the right;
// one that comes later learns it at once.
func TestALineThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, rights := range map[string][]string{
		"publish": {"-publish"}, "subscribe": {"-subscribe"}, "channels": {"resetchannels"}, "sorted sets": {"-@sortedset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			urls := ns.asUser("u")
			var events log
			lk := open(t, urls, &redlock.Options{Observer: events.observe})
			held := take(t, lk, "x", nil)
			w := standInLine(t, lk, "x", redlock.AcquireOptions{})
			ns.deny("u", rights...)
			events.await(t, redlock.EventNodeRefused, "", 2)
			_ = held.Release(t.Context())
			select {
			case <-w.done:
			case <-time.After(patience):
				t.Fatal("it waits in vain")
			}
			if w.err != nil {
				is(t, w.err, []error{redlock.ErrNotPermitted})
			}
			t.Logf("after %v: %v", w.took, w.err)

			late := openBlank(t, urls, &redlock.Options{NodeTimeout: generous})
			within(t, 0, "refusing", func() {
				_, err := late.Acquire(t.Context(), "y", nil)
				is(t, err, []error{redlock.ErrNotPermitted, redlock.ErrUnfit}, redlock.ErrHeld)
			})
		})
	}
}
