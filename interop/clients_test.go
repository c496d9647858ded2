package interop

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	goredsync "github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"example.com/redlock"
)

// ourClient is this project.
type ourClient struct{ lk *redlock.Locker }

func openOurs(t *testing.T, addrs []string) client {
	t.Helper()
	lk, err := redlock.Open(t.Context(), addrs, options())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lk.Init(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &ourClient{lk}
}

func (c *ourClient) try(name string, ttl time.Duration) (held, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := c.lk.TryAcquire(ctx, name, &redlock.AcquireOptions{TTL: ttl, NoRenew: true})
	if errors.Is(err, redlock.ErrHeld) {
		return nil, errRefused
	}
	if err != nil {
		return nil, err
	}
	return &ourLease{l, now()}, nil
}

func (c *ourClient) wait(ctx context.Context, name string, ttl time.Duration) (held, error) {
	l, err := c.lk.Acquire(ctx, name, &redlock.AcquireOptions{TTL: ttl, NoRenew: true})
	if err != nil {
		return nil, err
	}
	return &ourLease{l, now()}, nil
}

func (c *ourClient) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = c.lk.Close(ctx) // with servers that a test has killed it may fail
}

type ourLease struct {
	l   *redlock.Lease
	had instant
}

func (h *ourLease) from() instant { return h.had }

func (h *ourLease) until() instant { return now().add(time.Until(h.l.Deadline())) }

func (h *ourLease) extend() error { return h.l.Extend(context.Background()) }

func (h *ourLease) release() (instant, error) {
	at := now()
	return at, h.l.Release(context.Background())
}

// redsyncClient is redsync over go-redis.
type redsyncClient struct {
	rs      *goredsync.Redsync
	clients []*redis.Client
	options []goredsync.Option // besides what a call says
}

func openRedsync(t *testing.T, addrs []string) client {
	t.Helper()
	return newRedsync(addrs)
}

func newRedsync(addrs []string, options ...goredsync.Option) *redsyncClient {
	c := &redsyncClient{options: options}
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		r := redis.NewClient(&redis.Options{
			Addr: addr, ContextTimeoutEnabled: true,
			MaxRetries: -1, DialerRetries: 1, // a server that a test has killed stays dead
		})
		c.clients, pools = append(c.clients, r), append(pools, goredis.NewPool(r))
	}
	c.rs = goredsync.New(pools...)
	return c
}

// mutex returns one whose node timeout is a third of its expiry: by default it
// is a twentieth, less than a busy machine may need.
func (c *redsyncClient) mutex(name string, ttl time.Duration, tries int) *goredsync.Mutex {
	return c.rs.NewMutex(name, append([]goredsync.Option{
		goredsync.WithExpiry(ttl), goredsync.WithTries(tries), goredsync.WithTimeoutFactor(1.0 / 3),
		goredsync.WithRetryDelayFunc(func(int) time.Duration { return jitter() }),
	}, c.options...)...)
}

func (c *redsyncClient) try(name string, ttl time.Duration) (held, error) {
	m := c.mutex(name, ttl, 1)
	err := m.Lock()
	var taken *goredsync.ErrTaken
	if errors.As(err, &taken) {
		return nil, errRefused
	}
	if err != nil {
		return nil, err
	}
	return &redsyncLock{m, now()}, nil
}

func (c *redsyncClient) wait(ctx context.Context, name string, ttl time.Duration) (held, error) {
	m := c.mutex(name, ttl, math.MaxInt32)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return &redsyncLock{m, now()}, nil
}

func (c *redsyncClient) close() {
	for _, r := range c.clients {
		_ = r.Close() // of servers that may be gone
	}
}

type redsyncLock struct {
	m   *goredsync.Mutex
	had instant
}

func (h *redsyncLock) from() instant { return h.had }

func (h *redsyncLock) until() instant { return now().add(time.Until(h.m.Until())) }

func (h *redsyncLock) extend() error {
	ok, err := h.m.Extend()
	return refusal(ok, err)
}

func (h *redsyncLock) release() (instant, error) {
	at := now()
	ok, err := h.m.Unlock()
	return at, refusal(ok, err)
}

// refusal makes one error of redsync's two answers.
func refusal(ok bool, err error) error {
	switch {
	case ok:
		return nil
	case err == nil:
		return errors.New("a quorum has not confirmed")
	}
	return err
}
