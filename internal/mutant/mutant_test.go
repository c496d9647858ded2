package mutant

import (
	"slices"
	"testing"
)

func TestMutantsThatNoLongerFitAreFound(t *testing.T) {
	m, err := Parse("# why\nrun TestSim 1 9\nfile a.go\n--- old\n\tx()\n--- new\n\ty()\n--- old\nz\n--- new\n\n--- file b.go\n--- old\nu\n--- new\nv\n")
	if err != nil || m.Test != "TestSim" || !slices.Equal(m.Args, []string{"1", "9"}) {
		t.Fatalf("%+v, %v", m, err)
	}
	plant := func(a, b string) (map[string]string, error) {
		return m.Apply(func(file string) (string, error) { return map[string]string{"a.go": a, "b.go": b}[file], nil })
	}
	if got, err := plant("\tx()\nz\n", "u"); got["a.go"] != "\ty()\n\n" || got["b.go"] != "v" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, sources := range [][2]string{{"\tx()\n\tx()\nz\n", "u"}, {"\tx()\n", "u"}, {"\tx()\nz\n", "x"}} {
		if _, err := plant(sources[0], sources[1]); err == nil {
			t.Errorf("fits %q", sources)
		}
	}
}
