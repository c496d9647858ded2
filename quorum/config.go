package quorum

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// Config configures a Backend. The zero value, or nil, means every default.
// redlock.Options describes the fields of the same names.
type Config struct {
	Namespace   string
	Cluster     string
	PlainKeys   bool
	MaxTTL      time.Duration
	Quorum      int
	NodeTimeout time.Duration
	ConnectWait time.Duration
	DriftRate   float64
	DriftFloor  time.Duration
	CounterOnly bool
	Logger      *slog.Logger
	Observer    func(backend.Event)
}

const (
	// MinTTL is the shortest lease.
	MinTTL = 20 * time.Millisecond
	// minMaxTTL leaves room for what the nodes assign for two seconds.
	minMaxTTL = 2 * time.Second
	// longestMaxTTL keeps every time a script computes an exact number, with a
	// wide margin.
	longestMaxTTL = 24 * time.Hour

	minNodeTimeout = 20 * time.Millisecond
	maxNodeTimeout = 250 * time.Millisecond

	maxNameBytes      = 512
	maxNamespaceBytes = 64
)

func badOption(format string, args ...any) error {
	return fmt.Errorf("redlock: %w: %s", backend.ErrBadOption, fmt.Sprintf(format, args...))
}

// withDefaults checks c for n nodes and fills in what it leaves out.
func (c *Config) withDefaults(n int) (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	setDefault(&out.Namespace, "redlock")
	setDefault(&out.MaxTTL, 30*time.Second)
	setDefault(&out.Quorum, core.Majority(n))
	setDefault(&out.ConnectWait, 10*time.Second)
	setDefault(&out.DriftRate, 0.01)
	setDefault(&out.DriftFloor, 2*time.Millisecond)
	setDefault(&out.Logger, slog.Default())
	return out, out.check(n)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) check(n int) error {
	switch {
	case n < 1:
		return badOption("no nodes")
	case len(c.Namespace) > maxNamespaceBytes || strings.ContainsAny(c.Namespace, "{}"):
		return badOption("namespace %q is longer than %d bytes or has a brace", c.Namespace, maxNamespaceBytes)
	case strings.ContainsFunc(c.Namespace+c.Cluster, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return badOption("namespace %q or cluster %q has a space or an unprintable character", c.Namespace, c.Cluster)
	case len(c.Cluster) > maxNamespaceBytes || strings.Contains(c.Cluster, "|"):
		return badOption("cluster %q is longer than %d bytes or has a |", c.Cluster, maxNamespaceBytes)
	case c.MaxTTL < minMaxTTL || c.MaxTTL > longestMaxTTL || c.MaxTTL%time.Millisecond != 0:
		return badOption("max TTL %v is not between %v and %v in whole milliseconds", c.MaxTTL, minMaxTTL, longestMaxTTL)
	case c.Quorum < core.Majority(n) || c.Quorum > n:
		return badOption("quorum %d of %d nodes: must be from %d to %d", c.Quorum, n, core.Majority(n), n)
	case c.NodeTimeout < 0 || c.NodeTimeout > c.MaxTTL/4:
		return badOption("node timeout %v is not between 0 and a quarter of the max TTL of %v", c.NodeTimeout, c.MaxTTL)
	case c.ConnectWait < 0:
		return badOption("connect wait %v is negative", c.ConnectWait)
	case !(c.DriftRate >= 0 && c.DriftRate < 0.5): // also refuses NaN
		return badOption("drift rate %v is not between 0 and 0.5", c.DriftRate)
	case c.DriftFloor < 0:
		return badOption("drift floor %v is negative", c.DriftFloor)
	}
	return nil
}

// conf is what all clients of the nodes must agree on.
func (c *Config) conf(nodes []Node) node.Conf {
	members := c.Cluster
	if members == "" {
		names := make([]string, len(nodes))
		for i, n := range nodes {
			names[i] = n.Name()
		}
		members = node.MembersHash(names)
	}
	return node.Conf{
		Epoch: 1, Protocol: node.ProtocolVersion, N: len(nodes), Q: c.Quorum,
		MaxTTL: c.MaxTTL.Milliseconds(), Plain: c.PlainKeys, Members: members,
	}
}

// timeout is how long to wait for one node in an attempt with this TTL.
func (c *Config) timeout(ttl time.Duration) time.Duration {
	t := c.NodeTimeout
	if t == 0 {
		t = min(max(ttl/200, minNodeTimeout), maxNodeTimeout)
	}
	return max(min(t, ttl/4), time.Millisecond)
}
