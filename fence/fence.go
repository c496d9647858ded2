// Package fence holds the fencing token, the number by which a resource tells an
// old holder of a lock from a new one, and the rule of the gates that check it.
// The packages below it are gates that are ready to use: memgate, sqlgate,
// httpgate, redisgate and filegate. docs/gates.md says which one to take.
package fence

import "strconv"

// Token is the fencing number of one grant. For one lock name tokens are
// unique, but for readers that come at the same time, who may share one, and a
// grant whose Acquire began after another Acquire had returned has the larger
// token. Zero is no token.
//
// Open the gate of the guarded resource with the token before anything is read
// there: from then on older tokens are refused, and a holder which slept past
// the end of its lease is stopped. See Martin Kleppmann, "How to do
// distributed locking" (2016), for why no lease can do without it.
type Token uint64

// MaxToken is the largest token that can be given out. Nodes count in Lua
// numbers, which are exact below 2^53.
const MaxToken Token = 1<<53 - 1

// String returns the token in decimal digits.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }
