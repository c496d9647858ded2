package node

// Hello introduces a client to a node: the node compares the configuration
// with its own and says who it is.
type Hello struct {
	Keys Keyspace
	Conf Conf
	// Look only compares: the node stays as it is, and a Standing that would
	// have changed it says what a real Hello would find.
	Look bool
}

// Standing is how a node took a Hello.
type Standing string

// The standings. The words are those that the script sends.
const (
	// StandingOK: the node already had this configuration.
	StandingOK Standing = "ok"
	// StandingNew: the node was blank and has taken the configuration.
	StandingNew Standing = "new"
	// StandingAdopted: the node had this configuration from another process,
	// which it says it succeeds: it restarted, or its data came from elsewhere.
	StandingAdopted Standing = "adopted"
	// StandingMismatch: the node has another configuration and keeps it.
	StandingMismatch Standing = "mismatch"
)

// HelloReply is a node's reply to a Hello.
type HelloReply struct {
	// Time is the node's clock in microseconds since 1970.
	Time     int64
	Standing Standing
	// Guard is what the node shows now.
	Guard string
	// Previous is what it showed before (StandingAdopted).
	Previous string
	// RunID is the random id of the server process.
	RunID string
	// Version of the server, "7.0.15".
	Version string
	// Role is "master" or "slave", as INFO says it.
	Role string
	// Mode is "standalone", "cluster" or "sentinel".
	Mode string
	// MaxMemory in bytes, 0 for none, and the eviction policy.
	MaxMemory       int64
	MaxMemoryPolicy string
}
