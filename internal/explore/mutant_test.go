package explore

import (
	"regexp"
	"testing"

	"example.com/redlock/internal/mutant"
)

// TestMutants demands of each mutant that some world catches it.
func TestMutants(t *testing.T) {
	if slow {
		t.Skip("make explore does it")
	}
	mutant.Suite{
		Root:   "../..",
		Flags:  func([]string) []string { return []string{"-explore.all"} },
		Caught: regexp.MustCompile("world failed: (.*)"),
	}.Run(t)
}
