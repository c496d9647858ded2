package node

// Scan asks a node for the names of its leases, a page at a time, and needs no
// guard. A name whose key stays from the first page to the last is on one of
// them, or on several.
type Scan struct {
	Keys Keyspace
	// Pattern is a glob that ParsePattern accepts.
	Pattern string
	// Cursor is empty for the first page, and then what the last one said.
	Cursor string
	// Count is about how many keys, of whatever kind, to look at: what bounds
	// the time in which the node does nothing else.
	Count int
}

// ScanReply is one page.
type ScanReply struct {
	// Names of the leases. What a key holds is for Inspect to say. With plain
	// keys only strings that begin as a lease of ours does are taken for one:
	// the others are the application's.
	Names []string
	// Next is the cursor of the next page, empty after the last.
	Next string
}
