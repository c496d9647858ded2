// Package load puts one lock under load, from several processes, and measures
// it.
package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"example.com/redlock/bench/internal/peers"
)

// The workloads.
const (
	Solo = "solo" // each goroutine has its own names
	Hot  = "hot"  // one name for all
)

// Config is one run.
type Config struct {
	Peer, Workload string
	// Nodes are URLs; without any, N servers are started for the run.
	Nodes []string
	N     int
	// C is how many goroutines each of Procs processes has.
	C, Procs int
	// Hold is how long a lock is held. Negative means 1 ms for Hot, and no time
	// for Solo.
	Hold time.Duration
	// Batch is how many locks raw takes with one call.
	Batch int
	// Freeze is how many of its own servers stand still during the measurement.
	Freeze int
	// Latency is added to each round trip to a node.
	Latency time.Duration
	// Duration is the time of the measurement, after a warm-up.
	Duration time.Duration
}

const hotHold = time.Millisecond

// Check completes c with defaults and reports what cannot be run.
func (c *Config) Check() error {
	if c.Hold < 0 {
		c.Hold = 0
		if c.Workload == Hot {
			c.Hold = hotHold
		}
	}
	if err := peers.Check(c.Peer); err != nil {
		return err
	}
	switch {
	case c.Workload != Solo && c.Workload != Hot:
		return fmt.Errorf("no workload %q: there are %s and %s", c.Workload, Solo, Hot)
	case c.C < 1 || c.Procs < 1 || c.Batch < 1:
		return errors.New("goroutines, processes and batch are at least 1")
	case c.Duration <= 0:
		return errors.New("the duration is not positive")
	case c.Latency < 0:
		return errors.New("the latency is negative")
	case c.Batch > 1 && (c.Peer != "raw" || c.Workload != Solo):
		return errors.New("only raw on solo takes a batch of locks with one call")
	case len(c.Nodes) > 0 && c.Freeze > 0:
		return errors.New("only servers of its own can be frozen: leave -nodes out")
	case len(c.Nodes) == 0 && (c.N < 1 || c.Freeze < 0 || c.Freeze > c.N):
		return fmt.Errorf("cannot freeze %d of %d servers", c.Freeze, c.N)
	}
	return c.checkNodes()
}

func (c *Config) checkNodes() error {
	for i, node := range c.Nodes {
		if !strings.Contains(node, "://") {
			node = "redis://" + node
			c.Nodes[i] = node
		}
		u, err := url.Parse(node)
		if err != nil {
			return fmt.Errorf("node %d is no URL", i+1) // the error would quote its password
		}
		if c.Latency > 0 && (u.Scheme != "redis" || u.Port() == "") {
			return fmt.Errorf("node %d: latency needs redis://host:port", i+1)
		}
	}
	return nil
}

// Result is what one run measured, in the fields of its line of JSON.
type Result struct {
	Peer     string `json:"peer"`
	Workload string `json:"workload"`
	// Nodes is how many there were, frozen ones included.
	Nodes int `json:"nodes"`
	// C is how many goroutines each process had.
	C      int   `json:"c"`
	Procs  int   `json:"procs"`
	HoldUs int64 `json:"hold_us"`
	// CyclesPerS counts locks that were taken and given back, of all processes.
	CyclesPerS float64 `json:"cycles_per_s"`
	// The times are those of calls that succeeded, of all processes. The longest
	// lock also counts waits that the end of the run cut off.
	LockP50Us   float64 `json:"lock_p50_us"`
	LockP99Us   float64 `json:"lock_p99_us"`
	LockMaxUs   float64 `json:"lock_max_us"`
	UnlockP50Us float64 `json:"unlock_p50_us"`
	UnlockP99Us float64 `json:"unlock_p99_us"`
	// WorkerMin and WorkerMax are the cycles of the goroutines that had the
	// fewest and the most.
	WorkerMin int64 `json:"worker_min"`
	WorkerMax int64 `json:"worker_max"`
	// Errors counts calls that failed, of Lock and of Unlock.
	Errors int64 `json:"errors"`
	// Overlaps counts locks that were taken while another holder had the name.
	Overlaps int64 `json:"overlaps"`

	// FirstError says what the first of the errors was.
	FirstError string `json:"-"`
}

// JSON returns r as one line.
func (r Result) JSON() string {
	b, _ := json.Marshal(r) // plain numbers and strings
	return string(b)
}

// micros are the microseconds of d, with one decimal.
func micros(d time.Duration) float64 {
	return float64(d.Round(100*time.Nanosecond)) / float64(time.Microsecond)
}
