// Package fence holds the fencing token: the number a resource uses to tell
// an old holder of a lock from a new one.
package fence

import "strconv"

// Token is the fencing number of one grant. For one lock name tokens are
// unique, and a grant whose Acquire began after another Acquire had returned
// has the larger token. Zero is no token.
//
// Send the token along with every write to the guarded resource and let the
// resource refuse a token below the highest it has seen: that stops a holder
// which slept past the end of its lease. See Martin Kleppmann, "How to do
// distributed locking" (2016), for why no lease can do without it.
type Token uint64

// MaxToken is the largest token that can be given out. Nodes count in Lua
// numbers, which are exact below 2^53.
const MaxToken Token = 1<<53 - 1

// String returns the token in decimal digits.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }
