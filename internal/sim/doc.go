// Package sim runs the lock in a world made up from one number: clients that
// drive internal/core, nodes that are internal/nodemodel, a network that loses,
// doubles, delays and cuts, and a clock that nobody waits for. One goroutine, one
// seed, one run: what fails once fails again.
//
//	config.go   what a seed draws: nodes, quorum, clients, TTLs, clocks
//	script.go   the fault language; draw.go draws a script from a seed
//	bear.go     which scripts leases, and clocks, can bear
//	queue.go    virtual time
//	network.go  the links between clients and nodes
//	server.go   a node: the model, its clock, its freezes, and its losses
//	client.go   a process, with pauses and crashes; peer.go is its way to a node,
//	            quarantine.go what it does about one that may have forgotten
//	worker.go   what a process wants: take a name, work, give it back
//	attempt.go  the rules of quorum/attempt.go, without its concurrency
//	lease.go    the rules of quorum/lease.go and quorum/release.go
//	register.go the resource that is guarded, with a gate and without
//	checks.go   what must hold; the order is that of trust
//	counts.go   how often everything occurred
//	run.go      the two phases: turmoil, then calm and progress
//	walk.go     tokens alone, without time: short and many; walkloss.go has nodes
//	            forget in them
//
// A run has two phases. In the turmoil the script's faults strike, and nothing
// unsafe may happen. Then at least a quorum of the nodes is healed, and every
// client must get every name within Config.Patience, which covers the longest
// quarantine that the script can begin.
//
// A script says what strikes when, for instance
//
//	partition(c1->n2)@0.3s pause(c0,3s)@1s rate(n2,+0.8%)@0s restart(n3,keep)@4s restore(n1,3s)@5s
//
// All nodes are declared at the start. From then on any number of them may lose
// what they know, at any time: by a restart with or without data, with old data
// that was restored, by FLUSHALL, by a promotion with the last writes lost. That is
// what quarantine is for, and no check is relaxed for it.
//
// What is relaxed, and when:
//
//   - Intervals, and porcupine with them: in runs whose script has something that
//     leases cannot bear (Broken). That is an operator who frees a name under its
//     holder, a clock that runs faster than Config.Drift allows, and clocks that
//     jump on as many nodes at a time as any two quorums share, 2q − N; a jump
//     counts from a twentieth of the shortest TTL, but at most 250 ms, on, or if it
//     is the second within two MaxTTL. The clients of the simulator watch no clocks;
//     the library does, and TestNewcomers has the clocks of a minority jump as far as
//     they like, with nothing relaxed. A node that is
//     blank has nothing that could expire, so its clock may jump until its
//     quarantine can be over. In these runs two may believe to hold a name, and do.
//   - Tokens: never, but where a node began to count at its clock, because too few
//     others could tell it where, and some clock was so wrong in the run that they
//     differ by a MaxTTL (ClocksAgree). Then the tokens of those leases that say so
//     (Hold.ByClock) may repeat others or come after larger ones. All other tokens
//     must come after them, too. Where that happened, what the gate guards, and
//     porcupine, are not looked at.
//   - Progress: where Config.CounterOnly keeps a node out for that reason.
//
// The counts show that each of these occurs, and that tokens by clocks occur where
// no check is relaxed for them.
//
// The peer greets its nodes every ten seconds, as quorum's does: a client that waits
// for the quarantine of some nodes would else not notice that others forget
// meanwhile, and would wait for theirs afterwards.
//
// The same configurations and scripts also run the whole library over memnode, in
// bubbles of testing/synctest (shell_test.go, wire_test.go). There a seed fixes
// the configuration and the faults, but neither which goroutine comes first nor
// the library's own dice, and a process can be cut off but not stopped or killed; a
// node that gets old data back has nothing but its guard; and CounterOnly is off.
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
// waits for the next renewal is a second lock on the same door. Another is a
// quarantine that lasts for MaxTTL alone, without the time for attempts that are
// still being decided: what they count on the node was sent before it forgot, so
// they end with the leases.
package sim
