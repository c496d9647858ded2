package node

// Intent says what a Hello may change on the node.
type Intent uint8

// The intents.
const (
	// Greet begins a quarantine where the node may have forgotten something.
	Greet Intent = iota
	// Look only compares: the node stays as it is, and the reply says what a
	// Greet would find.
	Look
	// Declare makes a blank node, or one whose quarantine knows no
	// configuration, vote at once: an operator says that it is new.
	Declare
	// Suspect begins a quarantine where the node still shows Hello.Suspect: its
	// data went back in time under it, or may have.
	Suspect
	// Leapt begins one where the node still shows Hello.Suspect: its clock moved, and
	// leases may have ended early. Its counters have forgotten nothing by that.
	Leapt
	// Trust makes a node vote that is StandingDurable and shows Hello.Suspect: it
	// was seen to write everything to disk before it answers.
	Trust
	// Vouch marks a node that votes as one that forgets nothing when it restarts,
	// and Unvouch takes that back: an operator says so.
	Vouch
	Unvouch
)

// Hello introduces a client to a node: the node compares the configuration
// with its own and says who it is.
type Hello struct {
	Keys   Keyspace
	Conf   Conf
	Intent Intent
	// Nonce names a quarantine that begins now: a fresh random text of
	// hexadecimal digits.
	Nonce string
	// Suspect is the guard that is to be distrusted (Suspect, Leapt), or trusted (Trust).
	Suspect string
	// Record, unless empty, is to be kept of the node's clock, in place of Former, which
	// the client was told before: empty for nothing. The node does not read it. What is
	// kept goes when a quarantine begins.
	Record, Former string
}

// Standing is how a node took a Hello.
type Standing string

// The standings. The words are those that the script sends.
const (
	// StandingOK: the node votes under this configuration.
	StandingOK Standing = "ok"
	// StandingNew: the node is blank (Look), or was and now votes (Declare).
	StandingNew Standing = "new"
	// StandingDurable: the node restarted and is marked as one that forgets nothing.
	// It votes once it has been Trusted.
	StandingDurable Standing = "durable"
	// StandingQuarantined: the node may have forgotten leases, and does not vote
	// until every one of them is over.
	StandingQuarantined Standing = "quarantined"
	// StandingMismatch: the node has another configuration and keeps it.
	StandingMismatch Standing = "mismatch"
)

// HelloReply is a node's reply to a Hello.
type HelloReply struct {
	// Time is the node's clock in microseconds since 1970.
	Time     int64
	Standing Standing
	// Guard is what the node shows now; empty if nothing.
	Guard string
	// Changed tells that this hello changed it, or would have (Look). Previous is
	// what it showed before, empty for nothing.
	Changed  bool
	Previous string
	// Credit (StandingQuarantined) is how many milliseconds clients have watched
	// the quarantine.
	Credit int64
	// Kept tells that the node is in quarantine, also that of another configuration,
	// and still has its counters: it was reconfigured, or its clock moved, and it has
	// forgotten nothing.
	Kept bool
	// Need is how many milliseconds the quarantine that the node shows has to last
	// at least, 0 if it does not say.
	Need int64
	// Was tells that the node is fenced (Configure), and under which configuration
	// it was before, NoConf for none. Empty if it is not.
	Was string
	// ByClock tells that the node's counters began, after a loss, at its clock.
	ByClock bool
	// Since is when, by the node's clock, its counters began anew after a quarantine,
	// 0 for never: what was seen of them before says nothing of what they are now.
	Since int64
	// Record is what the node keeps of its clock, empty for nothing.
	Record string
	// Durable tells that the node is marked as one that forgets nothing.
	Durable bool
	// Life is the identity that guards name: the process, and which of its terms
	// as a master.
	Life string
	// RunID is the random id of the server process.
	RunID string
	// Version of the server, "7.0.15".
	Version string
	// Role is "master" or "slave", as INFO says it, Master the address of a
	// replica's master.
	Role   string
	Master string
	// Mode is "standalone", "cluster" or "sentinel".
	Mode string
	// MaxMemory in bytes, 0 for none, and the eviction policy.
	MaxMemory       int64
	MaxMemoryPolicy string
}
