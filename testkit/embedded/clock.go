package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// clock is the server's clock. Miniredis is told the time before each command,
// so that the time stands still within a command, and within a script.
type clock struct {
	mu  sync.Mutex
	now func() time.Time
}

func (c *clock) tell(redis *miniredis.Miniredis) {
	c.mu.Lock()
	defer c.mu.Unlock()
	redis.SetTime(c.now())
}

// set replaces the clock. Miniredis keeps a remaining time for each key where a
// server keeps the time of day at which it expires. It counts a jump forward
// against that; a jump back must be added here, after what has passed until now.
func (c *clock) set(redis *miniredis.Miniredis, now func() time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, after := c.now(), now()
	if back := before.Sub(after); back > 0 {
		redis.SetTime(before)
		redis.DB(0) // any access makes it count
		redis.FastForward(-back)
	}
	c.now = now
	redis.SetTime(after)
}
