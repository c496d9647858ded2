package clockshim

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:embed preload/clockshim.c
var source string

// library is the compiled library. It is kept here and not in a file, so that
// nothing is left behind and nobody else can put another in its place.
var library = sync.OnceValues(compile)

func compile() ([]byte, error) {
	compiler, err := findCompiler()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redlock-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "clockshim.so")
	cmd := exec.Command(compiler, "-O2", "-Wall", "-fPIC", "-shared", "-o", out, "-x", "c", "-")
	cmd.Stdin = strings.NewReader(source)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w:\n%s", compiler, err, &said)
	}
	return os.ReadFile(out)
}

func findCompiler() (string, error) {
	for _, name := range []string{"cc", "gcc"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotInstalled
}

// open creates the control file and maps it for as long as c is in use.
func (c *Clock) open(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	const size = int(unsafe.Sizeof(control{}))
	if err := f.Truncate(int64(size)); err != nil {
		return err
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", file, err)
	}
	c.control = (*control)(unsafe.Pointer(&memory[0]))
	runtime.AddCleanup(c, func(memory []byte) { _ = unix.Munmap(memory) }, memory)
	return nil
}

// monotonic returns CLOCK_MONOTONIC in ns, which package time does not show.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("clockshim: CLOCK_MONOTONIC: %v", err))
	}
	return ts.Nano()
}
