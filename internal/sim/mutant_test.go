package sim

import (
	"regexp"
	"testing"

	"example.com/redlock/internal/mutant"
)

// TestMutants demands of each mutant that some seed catches it.
func TestMutants(t *testing.T) {
	mutant.Suite{
		Root: "../..",
		Flags: func(args []string) []string {
			return []string{"-sim.seed=" + args[0], "-sim.seeds=" + args[1]}
		},
		Caught: regexp.MustCompile(`seed (\d+) failed: (.*)`),
	}.Run(t)
}
