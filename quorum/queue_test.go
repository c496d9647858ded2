package quorum

import (
	"math/rand/v2"
	"slices"
	"testing"

	"example.com/redlock/internal/node"
)

// TestQueue compares the queue with a plain slice over random operations.
func TestQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var q queue
	var want []*task
	for step := range 20_000 {
		switch rnd.IntN(4) {
		case 0, 1:
			kind := node.Acquire
			if rnd.IntN(2) == 0 {
				kind = node.Extend
			}
			x := &task{op: node.Op{Kind: kind}, lane: step}
			q.push(x)
			want = append(want, x)
		case 2:
			got, weight := q.take(nil, maxBatch-rnd.IntN(12))
			n := len(got)
			if !slices.Equal(got, want[:n]) {
				t.Fatalf("step %d: took other tasks than the first %d", step, n)
			}
			want = want[n:]
			if len(want) > 0 && weight < maxBatch {
				t.Fatalf("step %d: took %d with room left", step, n)
			}
			if rnd.IntN(3) == 0 {
				q.unshift(got)
				want = append(slices.Clone(got), want...)
			}
		case 3:
			odd := rnd.IntN(2)
			gone := func(x *task) bool { return x.lane%7 == odd }
			q.remove(gone)
			want = slices.DeleteFunc(want, gone)
		}
		if q.empty() != (len(want) == 0) || !slices.Equal(q.tasks[q.head:], want) {
			t.Fatalf("step %d: queue has %d tasks, want %d", step, len(q.tasks)-q.head, len(want))
		}
		if spare := q.tasks[:q.head]; slices.ContainsFunc(spare, func(x *task) bool { return x != nil }) {
			t.Fatalf("step %d: a task that left is still referred to", step)
		}
	}
}

func TestABatchCarries64OrMoreExtensions(t *testing.T) {
	for kind, want := range map[node.Kind]int{node.Acquire: 64, node.Release: 64, node.Extend: 256} {
		var q queue
		for range 1000 {
			q.push(&task{op: node.Op{Kind: kind}})
		}
		if got, _ := q.take(nil, 0); len(got) != want {
			t.Errorf("kind %d: %d in a batch, want %d", kind, len(got), want)
		}
	}
}
