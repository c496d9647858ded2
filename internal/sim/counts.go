package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.com/redlock/internal/node"
)

// Counts is how often everything occurred: faults, what the nodes answered to
// each kind of operation, and the branches that decisions took.
type Counts struct {
	of      map[string]int
	answers [node.Wait + 1][256]int
}

func newCounts() *Counts { return &Counts{of: make(map[string]int)} }

func (c *Counts) add(what string) { c.of[what]++ }

// either counts yes or no.
func (c *Counts) either(is bool, yes, no string) {
	if is {
		c.add(yes)
	} else {
		c.add(no)
	}
}

// Add adds the counts of another run.
func (c *Counts) Add(d *Counts) {
	for what, n := range d.of {
		c.of[what] += n
	}
	for kind := range d.answers {
		for code, n := range d.answers[kind] {
			c.answers[kind][code] += n
		}
	}
}

var kindNames = map[node.Kind]string{
	node.Acquire: "acquire", node.Extend: "extend", node.Join: "join", node.Raise: "raise",
	node.Replace: "replace", node.Release: "release", node.Break: "break", node.Inspect: "inspect", node.Wait: "wait",
}

// All returns the counts by what was counted.
func (c *Counts) All() map[string]int {
	all := maps.Clone(c.of)
	for kind := range c.answers {
		for code, n := range c.answers[kind] {
			if n > 0 {
				all[fmt.Sprintf("answer: %s %v", kindNames[node.Kind(kind)], node.Code(code))] = n
			}
		}
	}
	return all
}

// String lists the counts, one a line.
func (c *Counts) String() string {
	all := c.All()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%10d  %s\n", all[what], what)
	}
	return b.String()
}
