// Package backendtest is the conformance suite of package backend: what every
// coordination service must do before a redlock.Locker can stand on it. A
// backend runs it from a test of its own:
//
//	func TestConformance(t *testing.T) {
//		service := startService(t)
//		backendtest.Run(t, backendtest.Harness{
//			Open: func(t *testing.T) backend.Backend { return dial(t, service) },
//		})
//	}
//
// The cases run in parallel, use names that no other run uses, and take leases
// of half a second to a second where one has to end by itself.
package backendtest

import (
	"testing"

	"example.com/redlock/backend"
)

// Harness gives the suite access to one running service.
type Harness struct {
	// Open connects a new client to the service: always the same service,
	// never a client that was returned before. The suite closes it.
	Open func(t *testing.T) backend.Backend
}

// Run runs every case against the service behind h.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newFixture(t, h))
		})
	}
}

// cases are named after what a backend promises.
var cases = []struct {
	name string
	run  func(*fixture)
}{
	{"Exclusion", exclusion},
	{"TokensGrow", tokensGrow},
	{"NoWait", noWait},
	{"WaitsForRelease", waitsForRelease},
	{"WaitBound", waitBound},
	{"CancelWhileWaiting", cancelWhileWaiting},
	{"DeadlineWhileWaiting", deadlineWhileWaiting},
	{"DeadContext", deadContext},
	{"OutlivesItsContext", outlivesItsContext},
	{"RenewsItself", renewsItself},
	{"NoRenewEnds", noRenewEnds},
	{"StopRenewalEnds", stopRenewalEnds},
	{"ExtendProlongs", extendProlongs},
	{"ExtendNeverRevives", extendNeverRevives},
	{"ReleaseTwice", releaseTwice},
	{"ReleaseOnDeadContext", releaseOnDeadContext},
	{"ReleaseOfLost", releaseOfLost},
	{"ResumeOnce", resumeOnce},
	{"ResumeTooLate", resumeTooLate},
	{"ReleaseHandle", releaseHandle},
	{"BadHandle", badHandle},
	{"AnyBytesInNames", anyBytesInNames},
	{"BadArguments", badArguments},
	{"SharedOrUnsupported", sharedOrUnsupported},
	{"Break", breakRefusesExtension},
	{"BreakNow", breakNowFrees},
	{"Inspect", inspect},
	{"List", list},
	{"Nodes", nodes},
	{"Doctor", doctor},
	{"Close", closeEnds},
}
