// Package filegate is a gate around one file. Processes on one host that go
// through it see the file whole, one after the other, and late holders of a lock
// not at all.
//
// Beside the file it keeps FILE.gate, with the highest tokens it was opened with,
// and FILE.lock, on which processes exclude each other (flock) for the moment of
// an operation. Both stay. A file is replaced, never changed: written beside it
// (FILE.new), synced and renamed, and so is FILE.gate, so that after a crash at
// any point each of them is the old one or the new one.
//
// It protects what goes through it, under one name of the file: other programs
// may read the file, and see it whole, but must not write it, and a symbolic or
// hard link to it is another resource. It does not work between hosts on a
// network file system whose flock is local, nor on Windows, where the error is
// errors.ErrUnsupported. Several files are not replaced together: a holder that
// fails half-way leaves what it had done by then. It opens all their gates, in a
// fixed order, before it reads from the first.
package filegate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"example.com/redlock/fence"
)

// Gate guards one file. Its methods may be called from any goroutine.
type Gate struct {
	path string
	run  func([]step) error
}

// New returns the gate of the file at path. The file need not exist; its folder
// must, once the gate is opened.
func New(path string) *Gate { return &Gate{path: path, run: runAll} }

// Open opens the gate for the holder of an exclusive lease. From then on older
// tokens are refused, also after a crash. ctx bounds the wait for operations of
// others. The error is a *fence.StaleError if the gate was opened with a token
// that goes before this one, fence.ErrBadToken, ctx.Err(), or of the file system: then
// the gate may or may not be open, and Open may be called again.
func (g *Gate) Open(ctx context.Context, token fence.Token) (*Writer, error) {
	p := pass{g, fence.Claim{Token: token}}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return &Writer{p}, nil
}

// OpenShared opens the gate for the holder of a shared lease, which may read
// beside others. Its errors are those of Open.
func (g *Gate) OpenShared(ctx context.Context, token fence.Token) (*Reader, error) {
	p := pass{g, fence.Claim{Token: token, Shared: true}}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	return &Reader{p}, nil
}

// Writer is an opened gate that one may read and write through. It is for one
// lease, and needs no closing. Goroutines that share it, or the token, are let in
// alike: nothing keeps another's write out between a read and a write of one.
type Writer struct{ pass pass }

// ReadFile returns what the file holds. If the token is stale by now, the error
// is a *fence.StaleError; fence.ErrNotOpen if FILE.gate was deleted;
// fs.ErrNotExist if there is no file.
func (w *Writer) ReadFile(ctx context.Context) ([]byte, error) { return w.pass.readFile(ctx) }

// WriteFile replaces what the file holds, keeping its permissions, and returns
// when that would survive a power cut. If the token is stale by now, nothing is
// done and the error is that of ReadFile. After an error of the file system the
// file is the old one or the new one.
func (w *Writer) WriteFile(ctx context.Context, data []byte) error {
	return w.pass.locked(ctx, func() error { return w.pass.gate.replace(w.pass.gate.path, data) })
}

// Reader is an opened gate that one may read through.
type Reader struct{ pass pass }

// ReadFile is like Writer.ReadFile.
func (r *Reader) ReadFile(ctx context.Context) ([]byte, error) { return r.pass.readFile(ctx) }

type pass struct {
	gate  *Gate
	claim fence.Claim
}

func (p pass) open(ctx context.Context) error {
	unlock, err := lock(ctx, p.gate.path+".lock")
	if err != nil {
		return p.gate.failed("open", err)
	}
	defer unlock()
	before, err := p.gate.read()
	if err != nil {
		return err
	}
	after, err := before.Open(p.claim)
	if err != nil {
		return p.named(err)
	}
	// Also if nothing changes: of what an earlier try wrote it is not certain
	// that it would survive a power cut.
	text := fmt.Sprintf(gateFormat, after.Exclusive, after.Shared)
	return p.gate.failed("open", p.gate.replace(p.gate.path+gateSuffix, []byte(text)))
}

func (p pass) readFile(ctx context.Context) (data []byte, err error) {
	err = p.locked(ctx, func() error {
		data, err = os.ReadFile(p.gate.path)
		return err
	})
	return data, err
}

// locked runs do while nobody else goes through the gate, if the claim may act.
func (p pass) locked(ctx context.Context, do func() error) error {
	unlock, err := lock(ctx, p.gate.path+".lock")
	if err != nil {
		return p.gate.failed("lock", err)
	}
	defer unlock()
	has, err := p.gate.read()
	if err != nil {
		return err
	}
	if err := has.Check(p.claim); err != nil {
		return p.named(err)
	}
	return p.gate.failed("use", do())
}

// named adds to err which file it is about.
func (p pass) named(err error) error {
	if stale, ok := errors.AsType[*fence.StaleError](err); ok {
		stale.Resource = p.gate.path
		return stale
	}
	return fmt.Errorf("filegate: %s: %w", p.gate.path, err)
}

func (g *Gate) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("filegate: %s %s: %w", doing, g.path, err)
}

const (
	gateSuffix = ".gate"
	gateFormat = "exclusive %d\nshared %d\n"
)

// read reads the tokens. No file is a gate that nobody has opened. A file that
// cannot be read, or understood, lets nobody in.
func (g *Gate) read() (fence.Gate, error) {
	var has fence.Gate
	text, err := os.ReadFile(g.path + gateSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return has, nil
	}
	if err != nil {
		return has, g.failed("read the tokens of", err)
	}
	_, err = fmt.Sscanf(string(text), gateFormat, &has.Exclusive, &has.Shared)
	if err != nil || fmt.Sprintf(gateFormat, has.Exclusive, has.Shared) != string(text) {
		return has, fmt.Errorf("filegate: %s%s is not what this package wrote: %q", g.path, gateSuffix, strings.TrimSpace(string(text)))
	}
	return has, nil
}
