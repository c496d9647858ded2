package core

import "time"

// Distance tells how far away a node is: the shortest time that a call took
// lately. A busy node answers late, a distant one always does.
type Distance struct {
	// Two spans of time, the newer still being measured.
	begun        Instant
	older, newer time.Duration
}

// distanceSpan is how long a measurement counts at least. It counts at most
// twice as long.
const distanceSpan = 5 * time.Second

// Took notes that a call that ended at now took d.
func (m *Distance) Took(now Instant, d time.Duration) {
	if m.begun == 0 || now.Sub(m.begun) >= distanceSpan {
		m.begun, m.older, m.newer = now, m.newer, 0
	}
	if m.newer == 0 || d < m.newer {
		m.newer = d
	}
}

// Calls is how many calls to keep under way at once so that the node does not
// wait for us: one, and another for every spacing that a call takes at least.
func (m *Distance) Calls(spacing time.Duration, most int) int {
	shortest := m.newer
	if m.older != 0 {
		shortest = min(shortest, m.older)
	}
	return min(1+int(shortest/spacing), most)
}
