package integration

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"example.com/redlock"
	"example.com/redlock/quorum"
	"example.com/redlock/redisnode"
)

// scripted is a redisnode.Conn that fails some commands by itself.
type scripted struct {
	client rueidis.Client
	// fail returns the error for a command, or nil to send it.
	fail func(args []string) error
}

func (c *scripted) Do(ctx context.Context, args ...string) (any, error) {
	if err := c.fail(args); err != nil {
		return nil, err
	}
	reply, err := c.client.Do(ctx, c.client.B().Arbitrary(args...).Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return reply, err
}

func (*scripted) Listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *scripted) Close() error {
	c.client.Close()
	return nil
}

// TestB80AReleaseThatTheServerRefuses, whatever it says, is repeated, and
// reported if no quorum did it.
func TestB80AReleaseThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	var failures atomic.Int64
	var members []quorum.Node
	for _, s := range ns.servers {
		conn := &scripted{client: connect(t, s.Addr()), fail: func(args []string) error {
			if args[0] == "EVALSHA" && isRelease(args) && failures.Add(-1) >= 0 {
				return errors.New("ERR Error compiling script (new function): user_script:1: unexpected symbol")
			}
			return nil
		}}
		members = append(members, redisnode.New(conn, s.Addr()+"/0"))
	}
	b, err := quorum.New(members, &quorum.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	lk, err := redlock.New(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, lk) })
	if _, err := lk.Init(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	l := take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	failures.Store(6) // two for each node
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("a release that succeeded when repeated: %v", err)
	}
	ns.empty(undone, ns.all()...)

	l = take(t, lk, "x", &redlock.AcquireOptions{TTL: longTTL})
	failures.Store(1 << 30)
	err = l.Release(t.Context())
	is(t, err, []error{redlock.ErrNoQuorum})
	if !redlock.MayBeHeld(err) || !strings.Contains(err.Error(), "Error compiling script") {
		t.Errorf("it is not said that a key may remain, or why: %v", err)
	}
	failures.Store(0)
	within(t, 2*time.Second, "the repetition", func() { ns.empty(undone, ns.all()...) })
}

// isRelease reports whether a script call consists of a release.
func isRelease(args []string) bool {
	for _, a := range args[3:] {
		if a == "d" {
			return true
		}
	}
	return false
}
