// Package redlock is a distributed lock over N independent Redis masters.
//
// A Locker takes leases:
//
//	lk, err := redlock.Open(ctx, []string{"redis://a:6379", "redis://b:6379", "redis://c:6379"}, nil)
//	err = lk.Do(ctx, "invoice/42", nil, func(ctx context.Context, l *redlock.Lease) error {
//		return charge(ctx, l.Token())
//	})
//
// A lease is held while a majority of the nodes agrees, for a limited time that
// the Locker renews. Its Context is cancelled, with the reason, before the
// lease can end under you, and its Token is a number that only grows, for the
// guarded resource to refuse whoever comes late.
//
// Locker.AcquireAll takes several names as one: all or none, in any order,
// without deadlocks.
//
// The algorithm is the one that the Redis documentation describes as Redlock
// ("Distributed Locks with Redis"), with fencing tokens, a check of the node's
// identity in every call that grants, and stricter arithmetic; docs/protocol.md
// has the whole of it. With Options.PlainKeys the lock excludes, and is
// excluded by, the Redlock clients of other languages.
//
// What a lease cannot promise: while a process is stopped, or after its request
// has left it, no lock service can keep others out. If two overlapping holders
// must never harm your data, pass the token to a check at the resource.
package redlock
