package sim

import (
	"strings"
	"testing"
	"time"
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
		if why := Broken(c, drawn); why != "" && !c.Wild {
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
	const text = "pause(c0,3s)@1s drop(0.1)@0s restart(n3,forget)@4s restore(n0,3s)@4s flush(n*)@4s wall(c0,-1h0m0s)@4s step(n1,-200ms)@5s rate(n2,+0.8%)@6s partition(n*->c1)@7s"
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	const sorted = "drop(0.1)@0s pause(c0,3s)@1s restart(n3,forget)@4s restore(n0,3s)@4s flush(n*)@4s wall(c0,-1h0m0s)@4s step(n1,-200ms)@5s rate(n2,+0.8%)@6s partition(n*->c1)@7s"
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
	narrow := Draw(1)
	narrow.Nodes, narrow.Quorum, narrow.Drift.Rate, narrow.MaxTTL = 5, 3, 0.01, 2*time.Second
	wide := narrow
	wide.Quorum = 4
	for script, want := range map[string]struct{ narrow, wide string }{
		"rate(n1,+1%)@0s step(n1,+1ms)@1s pause(c1,1h)@1s restart(n1,keep)@2s break(x0)@3s wall(c1,+1h)@4s": {},
		"restart(n*,forget)@0s restore(n*,1s)@1s promote(n*,1s)@2s flush(n*)@3s":                            {},

		"rate(n1,-2%)@0s":                                  {"rate(n1,-2%)@0s", "rate(n1,-2%)@0s"},
		"free(x0)@0s":                                      {"free(x0)@0s", "free(x0)@0s"},
		"step(n1,+1s)@0s":                                  {narrow: "step(n1,+1s)@0s"},
		"step(n1,+1ms)@0s step(n1,+1ms)@1s":                {narrow: "step(n1,+1ms)@1s"},
		"step(n1,+1ms)@0s step(n2,+1ms)@1s":                {},
		"step(n1,+1s)@0s step(n2,+1s)@1s step(n1,+1s)@2s":  {narrow: "step(n1,+1s)@0s"},
		"step(n1,+1s)@0s step(n2,+1s)@1s step(n3,-1s)@2s":  {"step(n1,+1s)@0s", "step(n3,-1s)@2s"},
		"step(n1,+1s)@0s step(n2,+1s)@1s step(n3,-1s)@4s":  {narrow: "step(n1,+1s)@0s"},
		"flush(n1)@0s step(n1,+1h)@40s step(n1,-1h)@45s":   {},
		"flush(n1)@0s step(n1,+1h)@46s":                    {narrow: "step(n1,+1h0m0s)@46s"},
		"flush(n1)@0s restore(n1,1s)@1s step(n1,+1h)@2s":   {narrow: "step(n1,+1h0m0s)@2s"},
		"flush(n1)@0s restart(n1,keep)@1s step(n1,+1h)@2s": {},
		"flush(n2)@0s step(n*,+1h)@2s":                     {"step(n*,+1h0m0s)@2s", "step(n*,+1h0m0s)@2s"},
	} {
		s, err := Parse(script)
		if err != nil {
			t.Fatal(err)
		}
		if got := Broken(narrow, s); got != want.narrow {
			t.Errorf("%s: got %q with 3 of 5", script, got)
		}
		if got := Broken(wide, s); got != want.wide {
			t.Errorf("%s: got %q with 4 of 5", script, got)
		}
	}
}

func TestClocksAgree(t *testing.T) {
	c := Config{Nodes: 2, MaxTTL: 2 * time.Second, Turmoil: 10 * time.Second, NodeOffset: []time.Duration{0, -500 * time.Millisecond}}
	for script, want := range map[string]bool{
		"flush(n0)@0s wall(c0,+1h)@0s":          true,
		"step(n1,-400ms)@0s":                    true,
		"step(n1,+300ms)@0s step(n1,-300ms)@1s": false,
		"rate(n0,+20%)@0s":                      false,
	} {
		s, err := Parse(script)
		if err != nil {
			t.Fatal(err)
		}
		if ClocksAgree(c, s) != want {
			t.Errorf("%s: agree: %v", script, !want)
		}
	}
}
