package core

import "testing"

func TestLift(t *testing.T) {
	for name, test := range map[string]struct {
		sure, counterOnly bool
		voting            int
		alone             bool   // the client does not see a quorum
		want              []Lift // of one try after the other
	}{
		"the counters are known":         {sure: true, want: []Lift{LiftNow}},
		"and no clock may decide":        {sure: true, counterOnly: true, want: []Lift{LiftNow}},
		"no clock may decide":            {counterOnly: true, voting: 2, want: []Lift{KeepUp, KeepUp, KeepUp, KeepUp}},
		"all that should can tell":       {voting: 2, want: []Lift{LiftNow}},
		"one more should be able to":     {voting: 1, want: []Lift{PutOff, PutOff, LiftNow}},
		"nobody tells, and two should":   {voting: 0, want: []Lift{PutOff, PutOff, LiftNow}},
		"more can tell than was thought": {voting: 3, want: []Lift{LiftNow}},
		"no quorum is seen":              {alone: true, want: []Lift{LeaveToOthers, LeaveToOthers, LeaveToOthers, LeaveToOthers}},
	} {
		q := NewQuarantine(0)
		reports := make([]TokenReport, 4)
		for i := range reports {
			reports[i] = TokenReport{Ours: !test.alone, Voting: i < test.voting}
		}
		for i, want := range test.want {
			if got := q.Lift(test.sure, test.counterOnly, 3, reports, 2); got != want {
				t.Errorf("%s, try %d: %d, not %d", name, i+1, got, want)
			}
		}
	}
}
