package sim

import (
	"slices"
	"strings"
	"testing"
)

// expected is what the fixed seeds must have met, or a green run means little.
// Missing on purpose: what foreign clients and full servers answer, which no run
// has.
const expected = `
answer: acquire broken
answer: acquire granted
answer: acquire held
answer: acquire no guard
answer: acquire stale
answer: break absent
answer: break done
answer: extend absent
answer: extend broken
answer: extend done
answer: extend held
answer: extend no guard
answer: join done
answer: join held
answer: join no guard
answer: join stale
answer: raise absent
answer: raise broken
answer: raise done
answer: raise held
answer: raise no guard
answer: release absent
answer: release broken
answer: release done
answer: release held
answer: replace absent
answer: replace broken
answer: replace granted
answer: replace held
answer: replace no guard
answer: replace stale
backoff: held
backoff: split
beyond what clocks bear: tokens out of order
beyond what counters bear: no progress
beyond what leases bear: two holders
beyond what leases bear: update lost without the gate
client: quit while a node was in quarantine
client: stalled after a send
gate: accepted a write
gate: refused a write
gate: refused to open
hello: new
hello: ok
hello: quarantined
late grant: kept
late grant: undone
lease: broken
lease: forgotten
lease: passed
network: cut off
network: doubled
network: lost
network: overtaken
network: refused
peer: greeted again
quarantine: begun after flush
quarantine: begun after promote
quarantine: begun after restart
quarantine: begun after restart without data
quarantine: begun after restore
quarantine: end left to others
quarantine: end put off
quarantine: kept up for want of counters
quarantine: over, floor by a clock
quarantine: over, floor by counters
raise: done
raise: failed
release: confirmed
release: no quorum
release: repeated
renewal: extended
renewal: joined
renewal: lost
renewal: missing
renewal: not joined
renewal: refusing
renewal: taken
renewal: unanswered
renewal: vanished
renewal: answer overtaken
renewal: won
resume: lost
resume: won
round: given up
round: hopeless
round: late
round: lost
round: won after a raise
round: won at once
round: won by a clock
round: won by counters
task: answer after silence
task: dropped for a quarantine
task: no longer wanted
task: refused in quarantine
tokens: by clocks that agree
tokens: by clocks that do not
tokens: not voting
tokens: voting
watch: known
watch: lifted
watch: not lifted
watch: unknown
`

func expectAll(t *testing.T, c *Counts) {
	t.Helper()
	all := c.All()
	lines := strings.Split(strings.TrimSpace(expected), "\n")
	for verb := range shapes {
		lines = append(lines, "fault: "+string(verb))
	}
	slices.Sort(lines)
	for _, what := range lines {
		if all[what] == 0 {
			t.Errorf("%q never occurred", what)
		}
	}
}
