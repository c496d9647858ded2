package backend

// Severity says what a Finding means.
type Severity string

// The severities.
const (
	// SeverityOK: the check found nothing wrong.
	SeverityOK Severity = "ok"
	// SeverityHint: worth knowing; nothing has to be done.
	SeverityHint Severity = "hint"
	// SeverityWarning: locks work, but this should be mended.
	SeverityWarning Severity = "warning"
	// SeverityFailure: the node does not vote, or, about all nodes, nothing can be
	// locked.
	SeverityFailure Severity = "failure"
)

// Finding is what one check of a Doctor found.
type Finding struct {
	// Node is the node's address, without credentials; empty if it is about all
	// of them.
	Node string
	// Check is the name of the check, a word or two.
	Check    string
	Severity Severity
	// Text says what was found, and Remedy what to do about it.
	Text, Remedy string
	// Err is why the node does not vote (SeverityFailure).
	Err error
}
