package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"sort"
	"strconv"
	"strings"
)

// Conf is what all clients of a set of nodes must agree on. It is stored on
// every node as part of the guard.
type Conf struct {
	Epoch    uint64
	Protocol int
	N, Q     int
	// MaxTTL in milliseconds.
	MaxTTL int64
	Plain  bool
	// Members names the set: MembersHash of the addresses, or a cluster name
	// chosen by the operator.
	Members string
}

// String returns the form that is stored on nodes and compared byte by byte.
func (c Conf) String() string {
	plain := 0
	if c.Plain {
		plain = 1
	}
	return fmt.Sprintf("%d|%d|%d|%d|%d|%d|%s", c.Epoch, c.Protocol, c.N, c.Q, c.MaxTTL, plain, c.Members)
}

// ParseConf reads what String wrote.
func ParseConf(s string) (Conf, error) {
	parts := strings.SplitN(s, "|", 7)
	if len(parts) != 7 {
		return Conf{}, fmt.Errorf("node: %q is no configuration", s)
	}
	var nums [6]int64
	for i := range nums {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil || n < 0 {
			return Conf{}, fmt.Errorf("node: %q is no configuration", s)
		}
		nums[i] = n
	}
	return Conf{
		Epoch: uint64(nums[0]), Protocol: int(nums[1]), N: int(nums[2]), Q: int(nums[3]),
		MaxTTL: nums[4], Plain: nums[5] == 1, Members: parts[6],
	}, nil
}

// Diff names the fields in which c and other differ, each with both values,
// c's first. Empty if they are equal.
func (c Conf) Diff(other Conf) []string {
	var diff []string
	add := func(field string, mine, theirs any) {
		if mine != theirs {
			diff = append(diff, fmt.Sprintf("%s: %v here, %v on the node", field, mine, theirs))
		}
	}
	add("epoch", c.Epoch, other.Epoch)
	add("protocol", c.Protocol, other.Protocol)
	add("number of nodes", c.N, other.N)
	add("quorum", c.Q, other.Q)
	add("max TTL in ms", c.MaxTTL, other.MaxTTL)
	add("plain keys", c.Plain, other.Plain)
	add("members", c.Members, other.Members)
	return diff
}

// Guard returns the string a node shows when the process runID has taken the
// configuration c.
func (c Conf) Guard(runID string) string { return runID + "|" + c.String() }

// SplitGuard returns the two parts of a guard.
func SplitGuard(guard string) (runID, conf string) {
	runID, conf, _ = strings.Cut(guard, "|")
	return runID, conf
}

// MembersHash identifies a set of node addresses, whatever their order.
func MembersHash(addrs []string) string {
	sorted := make([]string, len(addrs))
	for i, a := range addrs {
		sorted[i] = strings.ToLower(a)
	}
	sort.Strings(sorted)
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return hex.EncodeToString(sum[:8])
}

// Keyspace says which keys a lock occupies on a node. Every key and, later,
// channel is built here and nowhere else.
type Keyspace struct {
	// Namespace is the prefix of all keys.
	Namespace string
	// Plain makes the lock's own name the lease key, as other Redlock clients
	// have it.
	Plain bool
}

// Guard is the key of the node's guard.
func (k Keyspace) Guard() string { return k.Namespace + ":node" }

// Tokens is the key of the hash of token counters.
func (k Keyspace) Tokens() string { return k.Namespace + ":tokens" }

// Lease is the key of the lease of name.
func (k Keyspace) Lease(name string) string {
	if k.Plain {
		return name
	}
	return k.Namespace + ":{" + name + "}"
}

// Shards is the number of token counters on a node: a fixed number, so that
// lock names leave nothing behind.
const Shards = 4096

// FloorField is the field of the tokens hash below which no number is given
// out in any shard.
const FloorField = "floor"

// Shard is the token counter that name counts in.
func Shard(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % Shards)
}
