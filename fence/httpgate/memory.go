package httpgate

import (
	"context"
	"sync"

	"example.com/redlock/fence"
	"example.com/redlock/fence/internal/turn"
)

// Memory is a Store in the memory of one process. It remembers every resource
// that was ever opened, in about 200 bytes and the name. The zero value is
// ready.
type Memory struct {
	mu        sync.Mutex
	resources map[string]*turn.Turn
}

// Enter implements Store.
func (m *Memory) Enter(ctx context.Context, resource string, claim fence.Claim) (leave func(), err error) {
	t := m.resource(resource)
	if err := t.Open(claim); err != nil {
		return nil, err
	}
	return t.Enter(ctx, claim)
}

func (m *Memory) resource(name string) *turn.Turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.resources[name]
	if t == nil {
		if m.resources == nil {
			m.resources = make(map[string]*turn.Turn)
		}
		t = new(turn.Turn)
		m.resources[name] = t
	}
	return t
}
