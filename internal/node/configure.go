package node

// Configure gives a node another configuration, under which it is in quarantine.
// What it had granted may not be extended from then on.
//
// A change of configuration has two steps. First nodes are fenced: none of them
// votes, whatever time passes, before it has been configured once more. Then,
// when so many are fenced that the others are no quorum of the old configuration,
// every node of the new one is given a floor, and votes when its quarantine has
// lasted long enough.
type Configure struct {
	Keys Keyspace
	Conf Conf
	// Shown is the guard that the caller saw, empty for a blank node. One that
	// shows another by now is left alone.
	Shown string
	// Nonce names the quarantine: a fresh random text of hexadecimal digits.
	Nonce string
	// Fence fences the node. What follows does not apply then.
	Fence bool
	// Need is how many milliseconds the quarantine has to last at least.
	Need int64
	// Floor is the number up to which the node gives out none: no token of the old
	// configuration was larger. ByClock tells that it rests on a clock; if not, the
	// node's own counters do not any more.
	Floor   uint64
	ByClock bool
}

// ConfigureReply is a node's reply to a Configure.
type ConfigureReply struct {
	Time int64
	// Done tells that the node now shows the configuration. It refuses one that is
	// not newer than another that it shows, and a replica refuses all.
	Done bool
	// Shown is what the node showed before.
	Shown string
	// Was is the configuration that it had, NoConf for none. Fenced once more, it
	// is still the one of before the first time.
	Was string
	// Whole tells that its counters have forgotten nothing: it voted, or was
	// reconfigured when it did.
	Whole bool
	// Highest is the largest number it has given out, 0 for none.
	Highest uint64
	// ByClock tells that its counters began, after a loss, at its clock.
	ByClock bool
}
