// Package peers has the locks that the benchmark compares, each behind the same
// two calls.
package peers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// TTL is the same for all that have one: the default of this project.
const TTL = 10 * time.Second

// Unlock gives back what Lock took. It is an error if the lock was not held any
// more, or if too few nodes confirmed.
type Unlock func(context.Context) error

// Peer is one lock under load. Lock may be called from many goroutines.
type Peer interface {
	// Lock takes all names, waiting for other holders as long as ctx lives. Only
	// raw takes more than one.
	Lock(ctx context.Context, names []string) (Unlock, error)
	Close() error
}

// Settings say what to open.
type Settings struct {
	// Nodes are redis:// URLs.
	Nodes []string
	// Own tells that the nodes were started for this run, and are blank.
	Own bool
	// Goroutines is how many will lock at the same time.
	Goroutines int
	// Latency is what each round trip takes besides the machine's own time.
	Latency time.Duration
}

var built = map[string]func(context.Context, Settings) (Peer, error){
	"redlock":          openRedlock,
	"redsync":          func(_ context.Context, s Settings) (Peer, error) { return openRedsync(s, false) },
	"redsync-failfast": func(_ context.Context, s Settings) (Peer, error) { return openRedsync(s, true) },
	"raw":              openRaw,
	"naive":            func(context.Context, Settings) (Peer, error) { return naivePeer{}, nil },
}

// planned are the names of the contract that are still to come.
var planned = []string{"redislock", "rueidislock", "etcd", "zookeeper"}

// Check reports whether there is a peer of that name.
func Check(name string) error {
	if built[name] != nil {
		return nil
	}
	if slices.Contains(planned, name) {
		return fmt.Errorf("peer %s is not built yet", name)
	}
	var names []string
	for n := range built {
		names = append(names, n)
	}
	slices.Sort(names)
	return fmt.Errorf("no peer %q: there are %s; %s are to come", name,
		strings.Join(names, ", "), strings.Join(planned, ", "))
}

// Open opens the peer of that name. ctx bounds the opening only.
func Open(ctx context.Context, name string, s Settings) (Peer, error) {
	if err := Check(name); err != nil {
		return nil, err
	}
	return built[name](ctx, s)
}
