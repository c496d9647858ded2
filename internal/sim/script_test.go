package sim

import (
	"strings"
	"testing"
)

func TestScriptsSurvivePrinting(t *testing.T) {
	verbs := map[Verb]bool{}
	for seed := range uint64(500) {
		c := Draw(seed)
		drawn := DrawScript(c)
		again, err := Parse(drawn.String())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(again) != len(drawn) || again.String() != drawn.String() {
			t.Fatalf("seed %d: printed and parsed\n%v\nis\n%v", seed, drawn, again)
		}
		for i, f := range drawn {
			verbs[f.Verb] = true
			if again[i] != f {
				t.Fatalf("seed %d: %v became %+v, was %+v", seed, f, again[i], f)
			}
		}
		if why, _ := Broken(c, drawn); why != "" && !c.Wild {
			t.Errorf("seed %d: leases cannot bear %s", seed, why)
		}
	}
	for verb := range shapes {
		if !verbs[verb] {
			t.Errorf("no script has a %s", verb)
		}
	}
}

func TestParse(t *testing.T) {
	const text = "pause(c0,3s)@1s drop(0.1)@0s restart(n3,forget)@4s step(n1,-200ms)@5s rate(n2,+0.8%)@6s partition(n*->c1)@7s"
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	const sorted = "drop(0.1)@0s pause(c0,3s)@1s restart(n3,forget)@4s step(n1,-200ms)@5s rate(n2,+0.8%)@6s partition(n*->c1)@7s"
	if s.String() != sorted {
		t.Errorf("got %v", s)
	}
	for _, bad := range []string{
		"melt(n1)@0s", "freeze(n1)", "freeze(c1)@0s", "freeze(n)@0s", "freeze(n1,n2)@0s", "freeze(n-1)@0s", "freeze(n1)@-1s",
		"drop(2)@0s", "drop(NaN)@0s", "partition(c1->c2)@0s", "partition(c1)@0s", "rate(n1,1)@0s", "restart(n1,perhaps)@0s", "freeze n1@0s",
	} {
		if s, err := Parse(bad); err == nil || !strings.Contains(err.Error(), strings.Fields(bad)[0]) {
			t.Errorf("%s: got %v, %v", bad, s, err)
		}
	}
}

func TestBroken(t *testing.T) {
	c := Draw(1)
	c.Drift.Rate = 0.01
	for script, want := range map[string]struct{ broken, forgets bool }{
		"rate(n1,+1%)@0s step(n1,+1ms)@1s pause(c1,1h)@1s restart(n1,keep)@2s break(x0)@3s": {false, false},
		"rate(n1,-2%)@0s":                   {true, false},
		"step(n1,+1s)@0s":                   {true, false},
		"step(n1,+1ms)@0s step(n1,+1ms)@1s": {true, false},
		"step(n1,+1ms)@0s step(n2,+1ms)@1s": {false, false},
		"free(x0)@0s":                       {true, false},
		"restart(n1,forget)@0s":             {true, true},
	} {
		s, err := Parse(script)
		if err != nil {
			t.Fatal(err)
		}
		if why, forgets := Broken(c, s); (why != "") != want.broken || forgets != want.forgets {
			t.Errorf("%s: got %q, %v", script, why, forgets)
		}
	}
}
