package backend

// UnfitReason says in a word why a node cannot be trusted with a vote.
type UnfitReason string

// The reasons.
const (
	// UnfitVersion: the server is too old for what the scripts use.
	UnfitVersion UnfitReason = "version"
	// UnfitMode: the server is a member of a cluster, or a sentinel.
	UnfitMode UnfitReason = "mode"
	// UnfitReplica: the server repeats what another one says.
	UnfitReplica UnfitReason = "replica"
	// UnfitEviction: the server may delete a lease to make room.
	UnfitEviction UnfitReason = "eviction"
	// UnfitPersistence: the server was to be durable, and is not. It votes, but not
	// at once after a restart.
	UnfitPersistence UnfitReason = "persistence"
	// UnfitSameServer: the server is in the list under another address, too.
	UnfitSameServer UnfitReason = "same server"
	// UnfitPermission: the credentials do not allow what a lock needs. The error
	// is an ErrNotPermitted as well.
	UnfitPermission UnfitReason = "permission"
)

// UnfitError is an ErrUnfit that says why. It is found, with errors.As, in the
// error of a Vote, a NodeState or an Event.
type UnfitError struct {
	Reason UnfitReason
	// Other is the other server, where the reason is about two: the master of a
	// replica, by the name that it has in the list if it is there, or the node
	// that the same server is already.
	Other string
	// Text says it for people.
	Text string
	// Err is what the server said, if that is how it was found out.
	Err error
}

func (e *UnfitError) Error() string {
	text := ErrUnfit.Error()
	if e.Reason == UnfitPermission {
		text += ": " + ErrNotPermitted.Error()
	}
	if e.Text != "" {
		text += ": " + e.Text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives errors.Is the sentinels, and what the server said.
func (e *UnfitError) Unwrap() []error {
	errs := []error{ErrUnfit}
	if e.Reason == UnfitPermission {
		errs = append(errs, ErrNotPermitted)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}
