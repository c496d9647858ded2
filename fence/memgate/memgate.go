// Package memgate is a gate around a value, or a piece of work, in the memory
// of one process.
//
// It protects the value from late holders of a lock: whoever slept past the end
// of its lease, and whose lock somebody else has taken since, can neither read
// nor write any more. It does not protect what goes around the gate: a pointer,
// map or slice that was taken out of Do and is used afterwards. It ends with
// the process, and the value with it. Work that fails half-way leaves what it
// had done by then; the next holder must be able to go on from there.
package memgate

import (
	"context"

	"example.com/redlock/fence"
	"example.com/redlock/fence/internal/turn"
)

// Gate guards one value of type T. Guard a piece of work that has no value with
// a Gate[struct{}]. Its methods may be called from any goroutine.
type Gate[T any] struct {
	turn  turn.Turn
	value T
}

// New returns a gate around value that nobody has opened.
func New[T any](value T) *Gate[T] { return &Gate[T]{value: value} }

// Open opens the gate for the holder of an exclusive lease. From then on older
// tokens are refused. The error is a *fence.StaleError if the gate was opened
// with a token that goes before this one, fence.ErrBadToken, or ctx.Err(): then
// the gate is as before.
func (g *Gate[T]) Open(ctx context.Context, token fence.Token) (*Writer[T], error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &Writer[T]{g, fence.Claim{Token: token}}
	if err := g.turn.Open(w.claim); err != nil {
		return nil, err
	}
	return w, nil
}

// OpenShared opens the gate for the holder of a shared lease, which may read
// beside others. Its errors are those of Open.
func (g *Gate[T]) OpenShared(ctx context.Context, token fence.Token) (*Reader[T], error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &Reader[T]{g, fence.Claim{Token: token, Shared: true}}
	if err := g.turn.Open(r.claim); err != nil {
		return nil, err
	}
	return r, nil
}

// Writer is an opened gate that one may read and write through. It is for one
// lease, and needs no closing. Goroutines that share it, or the token, are let in
// alike: nothing keeps another's write out between a read and a write of one.
type Writer[T any] struct {
	gate  *Gate[T]
	claim fence.Claim
}

// Do runs work alone, with the value to read and to change, and returns its
// error. If the token is stale by now, work does not run and the error is a
// *fence.StaleError. ctx bounds the wait for work that runs already. work must
// not use the same gate, or it waits for itself.
func (w *Writer[T]) Do(ctx context.Context, work func(value *T) error) error {
	leave, err := w.gate.turn.Enter(ctx, w.claim)
	if err != nil {
		return err
	}
	defer leave()
	return work(&w.gate.value)
}

// Reader is an opened gate that one may read through.
type Reader[T any] struct {
	gate  *Gate[T]
	claim fence.Claim
}

// Do runs work with the value, beside other readers and no writer. Otherwise it
// is like Writer.Do. If T is or has a pointer, map or slice, work must not
// change what that leads to.
func (r *Reader[T]) Do(ctx context.Context, work func(value T) error) error {
	leave, err := r.gate.turn.Enter(ctx, r.claim)
	if err != nil {
		return err
	}
	defer leave()
	return work(r.gate.value)
}
