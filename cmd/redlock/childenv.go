package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.com/redlock/fence"
)

// grant is what a command is told about the lease that it runs under.
type grant struct {
	name  string
	owner string
	token fence.Token
	ttl   time.Duration
}

// childEnv returns the environment of the command: env, with what an outer
// redlock said about its own lease replaced.
func (g grant) childEnv(env []string) []string {
	held := append(heldNames(env), g.name)
	child := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "REDLOCK_") && !strings.HasPrefix(kv, "REDLOCK_NODES=")
	})
	return append(child,
		"REDLOCK_HELD=true",
		"REDLOCK_KEY="+g.name,
		"REDLOCK_FENCE="+g.token.String(),
		"REDLOCK_OWNER="+g.owner,
		fmt.Sprintf("REDLOCK_TTL_MS=%d", g.ttl.Milliseconds()),
		"REDLOCK_KEYS="+encodeNames(held),
	)
}

// heldNames returns the names that the process with env runs under already.
func heldNames(env []string) []string {
	list := getenv(env, "REDLOCK_KEYS")
	if list == "" {
		return nil
	}
	var names []string
	for word := range strings.SplitSeq(list, ",") {
		name, err := url.PathUnescape(word)
		if err != nil {
			name = word // not written by us: as it stands
		}
		names = append(names, name)
	}
	return names
}

// encodeNames makes one printable word of names that may be any bytes: they
// are joined by commas, after percent-encoding (RFC 3986) of the comma, the
// percent sign and whatever is not a visible ASCII character.
func encodeNames(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, c := range []byte(name) {
			if c <= ' ' || c > '~' || c == ',' || c == '%' {
				fmt.Fprintf(&b, "%%%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}
