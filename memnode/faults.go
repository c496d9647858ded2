package memnode

import (
	"time"

	"example.com/redlock/internal/nodemodel"
)

// Freeze stops the node: calls arrive and wait.
func (n *Node) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = true
}

// Thaw lets a frozen node go on. It carries out all that has arrived
// meanwhile, also for callers who have given up, as a server does with what is
// in its socket's buffer.
func (n *Node) Thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = false
	n.serve()
}

// Delay makes each further call travel for d before it reaches the node. Calls
// keep their order.
func (n *Node) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Down takes the node down, or up again with its data: further calls are
// refused with ErrDown; those that have not been carried out never will be,
// and all that are unanswered fail with ErrReset.
func (n *Node) Down(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	if down {
		n.reset()
	}
}

// DropReplies lets the node carry calls out and the callers not hear of it
// until their ctx ends.
func (n *Node) DropReplies(drop bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = drop
}

// DropPushes loses what the node publishes, unnoticed by it.
func (n *Node) DropPushes(drop bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropPushes = drop
}

// CutListeners ends the connections over which clients listen.
func (n *Node) CutListeners() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutListeners(ErrReset)
}

// Restart puts a new process in the node's place, with a run_id of its own and
// thawed. With keep it finds the data of the old one. Unanswered calls fail
// with ErrReset.
func (n *Node) Restart(keep bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reset()
	n.frozen = false
	n.model.Restart(n.nextRunID(), keep)
}

func (n *Node) reset() {
	n.arriving = nil
	n.hangUp(ErrReset)
}

// Durable makes the node say that it writes everything to disk before it answers.
func (n *Node) Durable(durable bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.durable = durable
}

// Promote makes the node a master anew that was a replica meanwhile, and came
// back with the data it has.
func (n *Node) Promote() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.model.Promote(n.nextRunID())
}

// Snapshot returns a function that puts the node's data back to what it is now,
// under the process that runs then, as a snapshot of a machine does.
func (n *Node) Snapshot() func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.model.Clone()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.model.Restore(was)
	}
}

// Wipe deletes all data, as FLUSHALL does: the process stays the same.
func (n *Node) Wipe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.model.Flush()
}

// ShiftClock moves the node's clock by d, on top of earlier shifts. Keys
// expire at the time of day that was fixed when they were written.
func (n *Node) ShiftClock(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shift += d
	// As a server does within a tenth of a second: if the clock then goes back,
	// what had expired stays away.
	n.model.Sweep(n.now())
}

// Set stores a string with a remaining time of ttl, or without end if that is
// 0, as any other client of a server can.
func (n *Node) Set(key, value string, ttl time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := nodemodel.Value{Text: value}
	if ttl > 0 {
		v.Expires = n.now()/1000 + ttl.Milliseconds()
	}
	n.model.Set(key, v)
}

// Get returns a string and its remaining time, 0 for no end.
func (n *Node) Get(key string) (value string, ttl time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.model.Get(key, n.now())
	if v.Expires != 0 {
		ttl = time.Duration(v.Expires-n.now()/1000) * time.Millisecond
	}
	return v.Text, ttl, ok
}

// Keys are the keys of all that is stored, of any type.
func (n *Node) Keys() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.model.Keys(n.now())
}

// Delete removes a key, as an operator may.
func (n *Node) Delete(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.model.Delete(key)
}
