package quorum

import "example.com/redlock/internal/node"

const (
	// maxBatch is the weight of a call: 64 operations, or more extensions,
	// which cost a node less.
	maxBatch     = 256
	fullWeight   = 4
	extendWeight = 1
)

// queue is a line of tasks, first in, first out. The zero value is empty.
type queue struct {
	tasks []*task
	head  int // tasks before it have left
}

func (q *queue) empty() bool { return q.head == len(q.tasks) }

func (q *queue) push(t *task) {
	if 2*q.head >= len(q.tasks) { // also when empty: reuse the room in front
		n := copy(q.tasks, q.tasks[q.head:])
		clear(q.tasks[n:])
		q.tasks, q.head = q.tasks[:n], 0
	}
	q.tasks = append(q.tasks, t)
}

// unshift puts tasks before all others.
func (q *queue) unshift(tasks []*task) {
	if len(tasks) > 0 {
		q.tasks, q.head = append(tasks, q.tasks[q.head:]...), 0
	}
}

// take moves tasks to batch, which has the given weight, until it is full.
func (q *queue) take(batch []*task, weight int) ([]*task, int) {
	for ; !q.empty() && weight < maxBatch; q.head++ {
		t := q.tasks[q.head]
		q.tasks[q.head] = nil
		batch = append(batch, t)
		if t.op.Kind == node.Extend {
			weight += extendWeight
		} else {
			weight += fullWeight
		}
	}
	return batch, weight
}

// remove takes out the tasks that gone says.
func (q *queue) remove(gone func(*task) bool) {
	rest := q.tasks[q.head:q.head]
	for _, t := range q.tasks[q.head:] {
		if !gone(t) {
			rest = append(rest, t)
		}
	}
	clear(q.tasks[q.head+len(rest):])
	q.tasks = q.tasks[:q.head+len(rest)]
}
