// Package naive has the locks that people write first, for checks to prove that
// they can tell a lock from none: a check that passes with one of these is worth
// nothing.
package naive

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Locker is the least that a check needs of a lock.
type Locker interface {
	// Lock waits until it has the name, at most for the life of ctx. unlock
	// gives it back.
	Lock(ctx context.Context, name string, ttl time.Duration) (unlock func(context.Context) error, err error)
}

// None locks nothing.
type None struct{}

// Lock succeeds at once, whoever else did.
func (None) Lock(context.Context, string, time.Duration) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}

// SetNX locks by SET NX PX on one Redis and unlocks by DEL, whoever holds the
// name by then: a holder that comes late frees the name of the next one.
type SetNX struct {
	Addr string // host:port
}

// Lock asks again every few milliseconds while the name is taken. ttl counts in
// whole milliseconds, at least one.
func (s SetNX) Lock(ctx context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
	const pause = 5 * time.Millisecond
	px := strconv.FormatInt(max(1, ttl.Milliseconds()), 10)
	for {
		reply, err := s.do(ctx, "SET", name, "locked", "NX", "PX", px)
		if err != nil {
			return nil, err
		}
		if reply == "+OK" {
			return func(ctx context.Context) error {
				_, err := s.do(ctx, "DEL", name)
				return err
			}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// do sends one command on a connection of its own and returns the first line of
// the reply.
func (s SetNX) do(ctx context.Context, command ...string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return "", fmt.Errorf("naive: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	request := fmt.Appendf(nil, "*%d\r\n", len(command))
	for _, arg := range command {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	line := ""
	if _, err = conn.Write(request); err == nil {
		line, err = bufio.NewReader(conn).ReadString('\n')
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("naive: %s: %w", command[0], err)
	case strings.HasPrefix(line, "-"):
		return "", fmt.Errorf("naive: %s: %s", command[0], strings.TrimSpace(line[1:]))
	}
	return strings.TrimSpace(line), nil
}
