package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
)

// A change to a shorter MaxTTL, and then two nodes restart without data: how long their
// quarantine has to last for the sake of old leases only the third still knows.
func TestBlankNodesSitOutAChangeOfConfiguration(t *testing.T) {
	for _, restart := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			before := c.open("abc", Config{MaxTTL: 30 * time.Second})
			for _, s := range before.Init(t.Context(), backend.InitOptions{}) {
				if s.Err != nil {
					t.Fatal(s.Err)
				}
			}
			h := c.hold(before, "x", 30*time.Second)
			after := c.open("abc", Config{MaxTTL: 2 * time.Second})
			c.reconfigure(after, "")
			for _, name := range []string{"b", "c"} {
				if restart {
					c.at[name].Restart(false)
				} else {
					c.at[name].Wipe()
				}
			}
			c.take(after, "x")
			if len(h.lost) == 0 && time.Until(h.Deadline()) > 0 {
				t.Errorf("two holders for %v", time.Until(h.Deadline()))
			}
		})
	}
}
