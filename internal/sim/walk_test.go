package sim

import (
	"strings"
	"testing"
)

// TestWalk looks at tokens alone, over many short walks.
func TestWalk(t *testing.T) {
	first, count, _ := seedRange(10_000 / raceFactor)
	runWalks(t, first, count)
}

func runWalks(t *testing.T, first, count uint64) {
	granted := 0
	for seed := first; seed < first+count; seed++ {
		n, steps, err := Walk(seed)
		if err != nil {
			t.Fatalf("seed %d failed: %v\n%s", seed, err, strings.Join(steps, "\n"))
		}
		granted += n
	}
	t.Logf("%d tokens", granted)
	if granted < int(count) {
		t.Error("too few tokens to mean anything")
	}
}
