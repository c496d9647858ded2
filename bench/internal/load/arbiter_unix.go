//go:build unix

package load

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// arbiter counts holders of the contended name, over all processes, in eight
// bytes of memory that they share: the pages of one file.
//
// A holder comes in after Lock has returned and goes out before it calls
// Unlock. Each is one atomic addition, so all of them happen in one order
// that every process agrees on, and no clock is needed: whoever comes in and
// finds that it is not alone overlaps with another holder, for certain; and of
// any two holders whose times have a moment in common, the later one finds the
// earlier.
type arbiter struct {
	page   []byte
	inside *atomic.Int64
}

// newArbiterFile makes the file that arbiters open.
func newArbiterFile() (string, error) {
	f, err := os.CreateTemp("", "redlock-bench-")
	if err != nil {
		return "", err
	}
	err = f.Truncate(int64(os.Getpagesize()))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return f.Name(), err
}

func openArbiter(path string) (*arbiter, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping stays
	page, err := syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	// The kernel hands out whole pages, so the counter is aligned.
	return &arbiter{page, (*atomic.Int64)(unsafe.Pointer(&page[0]))}, nil
}

// enter tells whether somebody else is inside.
func (a *arbiter) enter() bool { return a.inside.Add(1) > 1 }

func (a *arbiter) leave() { a.inside.Add(-1) }

func (a *arbiter) close() error { return syscall.Munmap(a.page) }
