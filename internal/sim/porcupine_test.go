package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkLinearizable asks porcupine whether the history is one of a lock with
// fencing tokens. It looks at the holds as the first two checks do and may find
// what they have overlooked.
func checkLinearizable(history []*Hold) []string {
	switch porcupine.CheckOperationsTimeout(lockModel, operations(history), time.Minute) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []string{"porcupine: does not know"}
	}
	return []string{"porcupine: not the history of a lock"}
}

// lockOp takes a name with a token, or gives it up.
type lockOp struct {
	name  int
	token uint64
	take  bool
}

// operations turns holds into what porcupine wants. Somebody who stops holding
// does so at the end of the interval or at any time later: nobody else notices
// when.
func operations(history []*Hold) []porcupine.Operation {
	var ops []porcupine.Operation
	for i, h := range history {
		if h.Until() <= h.Start {
			continue // never held; its token is the business of other checks
		}
		ops = append(ops,
			porcupine.Operation{ClientId: 2 * i, Input: lockOp{h.Name, h.Token, true}, Call: int64(h.Called), Return: int64(h.Start)},
			porcupine.Operation{ClientId: 2*i + 1, Input: lockOp{h.Name, h.Token, false}, Call: int64(h.Until()), Return: math.MaxInt64})
	}
	return ops
}

// lockState is who holds, and the largest token so far. Zero: nobody.
type lockState struct{ holder, highest uint64 }

var lockModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		slices.SortStableFunc(history, func(a, b porcupine.Operation) int {
			return cmp.Compare(a.Input.(lockOp).name, b.Input.(lockOp).name)
		})
		var parts [][]porcupine.Operation
		for i, op := range history {
			if i == 0 || history[i-1].Input.(lockOp).name != op.Input.(lockOp).name {
				parts = append(parts, nil)
			}
			parts[len(parts)-1] = append(parts[len(parts)-1], op)
		}
		return parts
	},
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, op := state.(lockState), input.(lockOp)
		switch {
		case !op.take && s.holder == op.token:
			return true, lockState{0, s.highest}
		case !op.take:
			return true, s
		}
		return s.holder == 0 && op.token > s.highest, lockState{op.token, op.token}
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

func TestPorcupineFindsPlantedFaults(t *testing.T) {
	apart := []*Hold{{Token: 1, Called: 1, Start: 2, Deadline: 5}, {Token: 2, Called: 3, Start: 5, Deadline: 9}}
	if got := checkLinearizable(apart); got != nil {
		t.Error("one after the other:", got)
	}
	for what, history := range map[string][]*Hold{
		"overlap":  {{Token: 1, Called: 1, Start: 2, Deadline: 5}, {Token: 2, Called: 3, Start: 4, Deadline: 9}},
		"disorder": {{Token: 2, Called: 1, Start: 2, Deadline: 5}, {Token: 1, Called: 6, Start: 7, Deadline: 9}},
		"same":     {{Token: 1, Called: 1, Start: 2, Deadline: 5}, {Token: 1, Called: 6, Start: 7, Deadline: 9}},
	} {
		if checkLinearizable(history) == nil {
			t.Errorf("%s is not found", what)
		}
	}
}
