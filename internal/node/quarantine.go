package node

// Watch is a client's part in ending a quarantine: it says how long it has
// watched, and, once that is enough, lifts it.
type Watch struct {
	Keys Keyspace
	// Guard is the quarantine as the client knows it, whole.
	Guard string
	// Credit in milliseconds: for so long, the client knows, the quarantine has
	// lasted at least. The node keeps the largest claim.
	Credit int64
	// Lift ends the quarantine if the credit has reached Need. From then on the
	// node shows its configuration, or Conf if it has none, and gives out no
	// number up to Floor, which may rest on a clock.
	Lift    bool
	Need    int64
	Conf    string
	Floor   uint64
	ByClock bool
}

// WatchReply is a node's reply to a Watch.
type WatchReply struct {
	Time int64
	// Known tells that the node shows the guard that the client named, or did
	// until it was lifted; if not, nothing was done.
	Known  bool
	Lifted bool
	// Credit that the quarantine has now.
	Credit int64
}

// Tokens asks for the largest number that a node has given out under any name.
type Tokens struct {
	Keys Keyspace
	// Guard is what the node must show to vote.
	Guard string
}

// TokensReply is a node's reply to Tokens.
type TokensReply struct {
	Time int64
	// Voting tells that the node shows the guard and may grant.
	Voting bool
	// Highest is the largest number given out, 0 for none.
	Highest uint64
	// ByClock tells that the node's counters began, after a loss, at its clock.
	ByClock bool
}
