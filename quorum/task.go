package quorum

import (
	"time"

	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// task is one operation on its way to one node.
type task struct {
	op   node.Op
	sink sink
	// lane is what the sink knows the node by.
	lane int
	// timeout is how long to wait for the answer, from the send on.
	timeout time.Duration
	// queued and sent are when it was queued and written; sent is zero before.
	queued, sent core.Instant
	// until bounds the repetition of what frees, if the way to the node swallowed it.
	until core.Instant
	// settled: the sink has been told an outcome. Only a late answer can follow.
	settled bool
	// regreeted: the node did not know us, was greeted again, and is asked for
	// the second time.
	regreeted bool
	// kept: the sink was told a failure, but t is still in the queue.
	kept bool
}

// sink is told what becomes of its tasks, from any goroutine, and must not
// block. Each task gets one of the outcomes; after a silence an answer may
// still follow.
type sink interface {
	// depart asks, just before t is written, whether it is still wanted.
	depart(t *task) bool
	// answer: the node answered.
	answer(t *task, a node.Answer, at core.Instant)
	// fail: no answer. sent tells whether the node may have received it. A nil
	// err means silence.
	fail(t *task, err error, sent bool, at core.Instant)
}

// guarded reports whether the operation needs the node's configuration. The others free
// a name, or refuse its holder, or only read; they are kept for a while for a
// node that is silent or down.
func (t *task) guarded() bool { return t.op.Kind.Guarded() }
