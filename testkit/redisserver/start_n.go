package redisserver

import (
	"context"
	"errors"
	"time"
)

// TB is the part of testing.TB that StartN and StartWith need; this package is
// part of the command as well, which has no use for package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatal(args ...any)
	Error(args ...any)
}

// StartN starts n servers with the given command line options, for the time of
// the test. Without a server binary the test fails: it is never skipped.
func StartN(t TB, n int, args ...string) []*Server {
	t.Helper()
	servers := make([]*Server, 0, n)
	for range n {
		servers = append(servers, StartWith(t, Options{Args: args}))
	}
	return servers
}

// StartWith starts one server for the time of the test, as StartN does.
func StartWith(t TB, o Options) *Server {
	t.Helper()
	const startTimeout = 20 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := Start(ctx, o)
	if errors.Is(err, ErrNotInstalled) {
		t.Fatal(err, "(`make test` installs redis-server)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}
