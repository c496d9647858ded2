// Package sim runs the lock in a world made up from one number: clients that
// drive internal/core, nodes that are internal/nodemodel, a network that loses,
// doubles, delays and cuts, and a clock that nobody waits for. One goroutine, one
// seed, one run: what fails once fails again.
//
//	config.go   what a seed draws: nodes, quorum, clients, TTLs, clocks
//	script.go   the fault language; draw.go draws a script from a seed
//	queue.go    virtual time
//	network.go  the links between clients and nodes
//	server.go   a node: the model, its clock, its freezes and restarts
//	client.go   a process, with pauses and crashes; peer.go is its way to a node
//	worker.go   what a process wants: take a name, work, give it back
//	attempt.go  the rules of quorum/attempt.go, without its concurrency
//	lease.go    the rules of quorum/lease.go and quorum/release.go
//	register.go the resource that is guarded, with a gate and without
//	checks.go   what must hold; the order is that of trust
//	counts.go   how often everything occurred
//	run.go      the two phases: turmoil, then calm and progress
//	walk.go     tokens alone, without time: short and many
//
// A run has two phases. In the turmoil the script's faults strike, and nothing
// unsafe may happen. Then at least a quorum of the nodes is healed, and every
// client must get every name within Config.Patience.
//
// A script says what strikes when, for instance
//
//	partition(c1->n2)@0.3s pause(c0,3s)@1s rate(n2,+0.8%)@0s drop(0.1)@2s restart(n3,keep)@4s
//
// Runs whose script goes beyond what a lease can bear (a clock that jumps by
// seconds, an operator who frees a name under its holder) are drawn as well:
// there two may believe to hold a name, and do, but tokens stay unique and in
// order, and the gate loses nothing.
//
// The same configurations and scripts also run the whole library over memnode, in
// bubbles of testing/synctest (shell_test.go, wire_test.go). There a seed fixes
// the configuration and the faults, but neither which goroutine comes first nor
// the library's own dice, and a process can be cut off but not stopped or killed.
//
// A failing run prints its seed and its script. A run of one seed writes down
// what happens, and SCRIPT puts an edited script in place of its own; the dice of
// configuration, script, network and of each client are apart, so that little
// else changes:
//
//	make sim SEED=17
//	make sim SEED=17 SCRIPT='freeze(n0)@1s'
//
// The mutants in testdata/mutants are mistakes planted into the library; a test
// demands that each is caught. One that was planned is not there, because no run
// can tell it from the original: a join that counts towards the validity at
// once. A join is sent only after a quorum of extensions was acknowledged within
// the validity, and at the moment that it is acknowledged, within the validity
// too, the old quorum still has the lease: the new quorum follows without a gap.
// That is the very reason why a late grant counts at once. The rule that a join
// waits for the next renewal is a second lock on the same door.
package sim
