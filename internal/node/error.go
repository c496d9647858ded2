package node

// CallError is why a whole call, or a hello, got no reply.
type CallError struct {
	// Sent tells that the node may have carried the call out, or may still do
	// so. False only if it is certain that nothing ran: the connection could
	// not be made, or the server refused the script as a whole.
	Sent bool
	// Denied tells that the credentials do not allow what a lock needs.
	Denied bool
	// Mode is "cluster" or "sentinel" if that is what the server runs as, and
	// why it refused.
	Mode string
	// Err is the cause; its text holds no credentials.
	Err error
}

func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }
