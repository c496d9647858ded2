//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filegate

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// The kernel does not wake a waiter whose ctx ends, so it is asked again and
// again: soon, as operations are short, then less often.
const (
	firstPause = 500 * time.Microsecond
	longPause  = 20 * time.Millisecond
)

// lock waits until it has the file at path for itself. The file is never removed:
// two processes could then each lock one of the same name. The kernel unlocks
// when a process ends, however it ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := flock(ctx, int(f.Fd())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func flock(ctx context.Context, fd int) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}
