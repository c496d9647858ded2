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

// Guard returns what a node shows that votes under c.
func (c Conf) Guard(life string) string { return Guard{Life: life, Conf: c.String()}.String() }

// Accepts reports whether a client with configuration c may use a node that
// shows stored. The epoch is the node's to say; a protocol one older is spoken,
// too, so that clients can be upgraded one by one.
func (c Conf) Accepts(stored string) bool {
	theirs, ours := strings.SplitN(stored, "|", 3), strings.SplitN(c.String(), "|", 3)
	if len(theirs) != 3 || theirs[2] != ours[2] || !isDigits(theirs[0]) || !isDigits(theirs[1]) {
		return false
	}
	protocol, err := strconv.Atoi(theirs[1])
	return theirs[1] == ours[1] || err == nil && protocol == c.Protocol-1
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Guard is what a node shows, taken apart: whose data it is, whether that is in
// quarantine, and the configuration.
type Guard struct {
	// Life names the process that the data belongs to, and which of its terms
	// as a master.
	Life string
	// Nonce names the quarantine, empty if there is none.
	Nonce string
	// Conf is the configuration as it is stored, NoConf if a quarantined node
	// has none.
	Conf string
}

// NoConf stands for the configuration of a node that had none to keep.
const NoConf = "-"

const quarantinePrefix = "quarantine:"

// String returns the form that is stored on nodes and compared byte by byte.
func (g Guard) String() string {
	if g.Nonce != "" {
		return quarantinePrefix + g.Life + ":" + g.Nonce + "|" + g.Conf
	}
	return g.Life + "|" + g.Conf
}

// ParseGuard reads what String wrote.
func ParseGuard(s string) (Guard, bool) {
	head, conf, ok := strings.Cut(s, "|")
	g := Guard{Life: head, Conf: conf}
	if rest, quarantined := strings.CutPrefix(head, quarantinePrefix); quarantined {
		g.Life, g.Nonce, _ = strings.Cut(rest, ":")
		ok = ok && g.Nonce != ""
	}
	return g, ok && g.Life != "" && !strings.Contains(g.Life+g.Nonce, ":")
}

// Life is the identity of a server process in one of its terms as a master.
// replID2 is master_replid2: all zeros, until a replica is promoted, whose data
// may then be older than what the process had granted before.
func Life(runID, replID2 string) string {
	if strings.Trim(replID2, "0") == "" {
		return runID
	}
	return runID + "." + replID2[:min(len(replID2), 12)]
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

// Keyspace says which keys a lock occupies on a node. Every key and channel is
// built here, or from what is built here by call.lua.
type Keyspace struct {
	// Namespace is the prefix of all keys.
	Namespace string
	// Plain makes the lock's own name the lease key, as other Redlock clients
	// have it.
	Plain bool
}

// Guard is the key of the node's guard.
func (k Keyspace) Guard() string { return k.Namespace + ":node" }

// Quarantine is the key of the hash that has the credit of a quarantine.
func (k Keyspace) Quarantine() string { return k.Namespace + ":quarantine" }

// Durable is the key of the mark of a node that forgets nothing.
func (k Keyspace) Durable() string { return k.Namespace + ":durable" }

// Clock is the key of what is kept of the node's clock.
func (k Keyspace) Clock() string { return k.Namespace + ":clock" }

// Tokens is the key of the hash of token counters.
func (k Keyspace) Tokens() string { return k.Namespace + ":tokens" }

// Nothing is a key under which never anything is stored.
func (k Keyspace) Nothing() string { return k.Namespace + ":nothing" }

// Lease is the key of the lease of name.
func (k Keyspace) Lease(name string) string {
	if k.Plain {
		return name
	}
	return k.base(name)
}

// base is what the keys of a name begin with.
func (k Keyspace) base(name string) string { return k.Namespace + ":{" + name + "}" }

// Line is the key of the sorted set of a name's waiters, by ticket.
func (k Keyspace) Line(name string) string { return k.base(name) + ":line" }

// Waiters is the key of the hash that says more about each waiter.
func (k Keyspace) Waiters(name string) string { return k.base(name) + ":waiters" }

// Readers is the key of the sorted set of the attempts that share a name, by the
// node's time at which their leases end.
func (k Keyspace) Readers(name string) string { return k.base(name) + ":readers" }

// ReaderNumbers is the key of the hash of the numbers that they were given.
func (k Keyspace) ReaderNumbers(name string) string { return k.base(name) + ":readers:f" }

// Waiting is the key of a string that exists as long as any hash of waiters: where
// it does not, no operation has to look for one.
func (k Keyspace) Waiting() string { return k.Namespace + ":waiting" }

// Channel is where a client hears that one of its waiters was handed a name.
func (k Keyspace) Channel(client string) string { return k.Namespace + ":wake:" + client }

// Name is the name of the lock whose lease key is key; false if it is the key of
// something else. No name is empty.
func (k Keyspace) Name(key string) (name string, ok bool) {
	if k.Plain {
		return key, key != "" && !strings.HasPrefix(key, k.Namespace+":")
	}
	inner, opened := strings.CutPrefix(key, k.Namespace+":{")
	name, closed := strings.CutSuffix(inner, "}")
	return name, opened && closed && name != ""
}

// Glob matches, as Redis understands it, the lease keys of the names that
// pattern matches.
func (k Keyspace) Glob(pattern string) string {
	if k.Plain {
		return pattern
	}
	return globEscaper.Replace(k.Namespace) + ":{" + pattern + "}"
}

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// Shards is the number of token counters on a node: a fixed number, so that
// lock names leave nothing behind.
const Shards = 4096

// FloorField is the field of the tokens hash below which no number is given
// out in any shard.
const FloorField = "floor"

// ClockField is set in the tokens hash where the floor rests on the clock.
const ClockField = "clock"

// SinceField of the tokens hash is when a quarantine ended and the counters began
// anew, by the node's clock in microseconds since 1970.
const SinceField = "since"

// Shard is the token counter that name counts in.
func Shard(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % Shards)
}
