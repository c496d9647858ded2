package nodemodel

import (
	"maps"
	"slices"
	"strings"

	"example.com/redlock/internal/node"
)

// Scan returns a page of the names of leases at now, in microseconds since
// 1970. The cursor is the key at which the next page begins.
func (n *Node) Scan(s node.Scan, now int64) node.ScanReply {
	keys := slices.Collect(maps.Keys(n.hashes))
	if s.Keys.Plain { // no lease of ours is a hash
		keys = nil
	}
	keys = slices.AppendSeq(keys, maps.Keys(n.strings))
	slices.Sort(keys)
	first, _ := slices.BinarySearch(keys, s.Cursor)
	keys = keys[first:]
	var reply node.ScanReply
	if len(keys) > s.Count {
		reply.Next = keys[s.Count]
		keys = keys[:s.Count]
	}
	pattern, err := node.ParsePattern(s.Pattern)
	if err != nil {
		return reply
	}
	for _, key := range keys {
		name, ok := s.Keys.Name(key)
		if ok && pattern.Match(name) && n.mayBeLease(s.Keys, key, now) {
			reply.Names = append(reply.Names, name)
		}
	}
	return reply
}

func (n *Node) mayBeLease(keys node.Keyspace, key string, now int64) bool {
	value, ok := n.get(key, now)
	if !keys.Plain {
		return ok || n.holdsSet(key)
	}
	return ok && beginsAsLease(value.Text)
}

// beginsAsLease looks at the beginning only, because a value of an application
// may be long: see leases.lua.
func beginsAsLease(text string) bool {
	text = strings.TrimPrefix(text, brokenPrefix)
	return len(text) > 33 && strings.Trim(text[:32], "0123456789abcdef") == "" && text[32] == ':' &&
		'0' <= text[33] && text[33] <= '9'
}
