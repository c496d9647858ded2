// Package turn is the gate in memory that other gates are made of: it decides
// who may act, and lets one writer or any number of readers act at a time.
package turn

import (
	"context"
	"sync"

	"example.com/redlock/fence"
)

// Turn guards one resource. The zero value is a gate that nobody has opened.
type Turn struct {
	mu      sync.Mutex
	gate    fence.Gate
	readers int
	writing bool
	left    chan struct{} // closed when somebody leaves; nil while nobody waits
}

// Open admits c without waiting for those who are inside: whoever c goes before
// does not get in again.
func (t *Turn) Open(c fence.Claim) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	gate, err := t.gate.Open(c)
	t.gate = gate
	return err
}

// Enter waits until c is alone inside, or among readers only if it is shared.
// Until leave is called, nobody else enters who must not. The error is that of
// fence.Gate.Check, or ctx.Err().
func (t *Turn) Enter(ctx context.Context, c fence.Claim) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		// Again after each wait: others may have been admitted meanwhile.
		if err := t.gate.Check(c); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !t.writing && (c.Shared || t.readers == 0) {
			return t.enter(c), nil
		}
		t.wait(ctx)
	}
}

func (t *Turn) enter(c fence.Claim) (leave func()) {
	if c.Shared {
		t.readers++
	} else {
		t.writing = true
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if c.Shared {
			t.readers--
		} else {
			t.writing = false
		}
		if t.left != nil {
			close(t.left)
			t.left = nil
		}
	}
}

// wait gives up the mutex until somebody leaves or ctx ends.
func (t *Turn) wait(ctx context.Context) {
	if t.left == nil {
		t.left = make(chan struct{})
	}
	left := t.left
	t.mu.Unlock()
	defer t.mu.Lock()
	select {
	case <-left:
	case <-ctx.Done():
	}
}
