// Package explore looks at everything that can happen in small worlds: a few nodes
// (internal/nodemodel), a few clients that wait in line for one name (internal/core),
// and a network in which messages come in any order, are slow, overtaken or lost. It visits every state that can be reached, and in each it checks that
//
//   - nobody believes to hold the name together with a writer;
//   - tokens come in the order of the leases;
//   - if from now on messages arrive and nothing else fails, everybody that waits and
//     can reach a quorum gets its turn, in bounded time (calm.go).
//
// A World has bounds: how many turns the clients take, for how long anything may happen,
// and how much may go wrong. Within these bounds nothing is left out.
//
//	world.go   the bounds, and the state
//	client.go  a client: waits, holds, extends, releases, as the shell in quorum does
//	move.go    what can happen next
//	calm.go    what has to happen then
//	search.go  all of it
package explore
