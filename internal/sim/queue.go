package sim

import (
	"time"

	"example.com/redlock/internal/core"
)

// queue is virtual time: what is going to happen, in order. It is true time;
// the clocks of nodes and the wall clocks of clients deviate from it.
type queue struct {
	now    core.Instant
	events []event // a heap
	count  uint64  // events ever queued: those of one instant keep their order
}

type event struct {
	at  core.Instant
	seq uint64
	run func()
}

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// at has run happen at t.
func (q *queue) at(t core.Instant, run func()) {
	q.count++
	q.events = append(q.events, event{max(t, q.now), q.count, run})
	for i := len(q.events) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.events[i].before(q.events[parent]) {
			break
		}
		q.events[i], q.events[parent] = q.events[parent], q.events[i]
		i = parent
	}
}

// after has run happen once d has passed.
func (q *queue) after(d time.Duration, run func()) { q.at(q.now.Add(max(d, 0)), run) }

// step makes the next event happen, unless it is later than limit.
func (q *queue) step(limit core.Instant) bool {
	if len(q.events) == 0 || q.events[0].at > limit {
		return false
	}
	next := q.events[0]
	last := len(q.events) - 1
	q.events[0] = q.events[last]
	q.events[last] = event{}
	q.events = q.events[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q.events[child].before(q.events[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		q.events[i], q.events[least] = q.events[least], q.events[i]
		i = least
	}
	q.now = next.at
	next.run()
	return true
}
