package node

// Exam asks a node about itself beyond what a Hello does, as an operator would.
// It changes nothing and needs no guard.
type Exam struct {
	Keys Keyspace
}

// ExamReply is what a node says of itself.
type ExamReply struct {
	// Denied has the commands that the credentials do not allow, of those that are
	// used.
	Denied []Denial
	// WrongType has those of the node's own keys that hold another type than they
	// should.
	WrongType []string
	// NoWrites is why the server refuses to write at present, empty if it does not.
	NoWrites string
	// Info has the fields of INFO, nil if they cannot be read.
	Info map[string]string
	// Config has those of CONFIG GET that Exam asks for, nil if they cannot be
	// read, which locks do not need.
	Config map[string]string
}

// Denial is a command that may not be run.
type Denial struct {
	Command string
	// OnKeys tells that it may be run, but not on the keys, or channels, of the
	// namespace.
	OnKeys bool
	// Err is the server's own text.
	Err string
}
