package sim

import (
	"time"

	"example.com/redlock/internal/core"
)

// worker is one task of a process: it takes a name, works on what the name
// guards, and gives the name back, in one of several ways.
type worker struct {
	*client
	req     request
	tries   int
	limit   core.Instant // of its patience
	attempt *attempt
	// claiming marks a worker of the second phase; claims are the names that it
	// has yet to get.
	claims   []int
	claiming bool
}

// think is what follows a lease, or the failure to get one.
func (k *worker) think() {
	if k.brief() {
		k.quit()
	} else {
		k.rest()
	}
}

// rest lets some time go by before the worker wants a name.
func (k *worker) rest() {
	switch {
	case k.claiming:
		k.claim()
	case !k.calm:
		k.after(k.upTo(k.cfg.MinTTL/2), k.want)
	}
}

const (
	// briefLife is how long a process that lives for one lease only tries to get
	// it, and quitLimit how long its last words may take.
	briefLife = time.Second
	quitLimit = 250 * time.Millisecond
)

// quit ends the process in good order: it claims the time that it has seen of
// quarantines. Another, with the same wishes, takes its place.
func (k *worker) quit() {
	c := k.client
	for _, p := range c.peers {
		if p.quarantine != nil {
			c.counts.add("client: quit while a node was in quarantine")
			p.watch()
		}
	}
	c.after(quitLimit, func() {
		if c.calm && !k.claiming {
			return
		}
		c.exit()
		next := &worker{client: c, claiming: k.claiming, claims: k.claims}
		c.after(c.upTo(c.cfg.MinTTL/10), next.rest)
	})
}

// claim makes a worker of the second phase want the next of its names, until
// it has had all.
func (k *worker) claim() {
	if len(k.claims) == 0 {
		k.satisfied()
		return
	}
	k.tries, k.limit = 0, k.end
	if k.brief() {
		k.limit = k.now.Add(briefLife)
	}
	k.req = request{name: k.claims[0], ttl: k.cfg.MaxTTL, minValidity: k.cfg.MaxTTL / 2}
	k.try()
}

func (k *worker) want() {
	if k.calm {
		return
	}
	span := (k.cfg.MaxTTL - k.cfg.MinTTL).Milliseconds() + 1
	ttl := k.cfg.MinTTL + time.Duration(k.rnd.Int64N(span))*time.Millisecond
	k.req = request{
		name: k.rnd.IntN(k.cfg.Names), ttl: ttl,
		minValidity: pick(k.rnd, ttl/2, ttl/2, ttl/8, 0), noRenew: k.rnd.IntN(3) == 0,
	}
	k.tries, k.limit = 0, k.now.Add(k.upTo(2*k.cfg.MaxTTL))
	k.try()
}

func (k *worker) try() {
	a := k.acquire(k.req, k.decided)
	k.begin(a)
	k.after(k.limit.Sub(k.now), a.giveUp)
}

func (k *worker) begin(a *attempt) {
	k.attempt = a
	a.lost = k.lost
}

// decided is told how the round ended.
func (k *worker) decided(won bool) {
	if won {
		// The attempt is known only once it has been begun.
		k.after(0, k.hold)
		return
	}
	if k.now >= k.limit || k.calm && !k.claiming {
		k.think()
		return
	}
	held, remaining := k.attempt.heldBy()
	k.counts.either(held, "backoff: held", "backoff: split")
	pause := core.Backoff(k.tries, k.now.Sub(k.attempt.begun), held || k.attempt.hopeless, remaining, k.rnd.Uint64())
	k.tries++
	k.after(pause, k.try)
}

// lost is told that the lease ended by itself.
func (k *worker) lost() {
	a := k.attempt
	if k.rnd.IntN(2) == 0 {
		a.release(func() {}) // for the others' sake
	}
	k.after(0, k.think)
}

// hold works under the lease for a while.
func (k *worker) hold() {
	a := k.attempt
	k.work(a)
	wanted := k.upTo(k.cfg.Hold)
	if k.claiming {
		k.claims, wanted = k.claims[1:], k.upTo(k.cfg.MinTTL/10)
	}
	k.after(wanted, func() {
		if a.phase == holding {
			k.leave(a)
		}
	})
}

// leave gives the lease up in one of the ways there are.
func (k *worker) leave(a *attempt) {
	switch way := k.rnd.IntN(10); {
	case k.claiming || way < 7:
		a.release(k.think)
	case way < 9 && !k.calm:
		to := k.clients[k.rnd.IntN(len(k.clients))]
		a.move(func(h handle) {
			k.queue.after(k.latency, func() { to.do(to.life, func() { to.resumeLease(h) }) })
			k.think()
		})
	default:
		a.req.noRenew = true // and the TTL does the rest
	}
}

// resumeLease has a new worker go on with a lease that was moved here.
func (c *client) resumeLease(h handle) {
	k := &worker{client: c}
	ttl := c.cfg.MaxTTL
	k.req = request{name: h.name, ttl: ttl, minValidity: ttl / 2}
	k.limit = c.now // one try
	k.begin(c.takeOver(h, k.req, func(won bool) {
		c.counts.either(won, "resume: won", "resume: lost")
		if won {
			k.after(0, k.hold)
		}
	}))
}

// work opens the gate, reads, and writes. Half of the workers do not look
// whether they still hold the name by then: that is what the gate is for.
func (k *worker) work(a *attempt) {
	r, token := k.registers[a.req.name], a.token
	careless := k.rnd.IntN(2) == 0
	k.after(k.upTo(k.cfg.Hold/4), func() {
		seen, ok := r.open(token)
		loose := r.loose
		if !ok {
			k.counts.add("gate: refused to open")
			return
		}
		k.after(k.upTo(k.cfg.Hold), func() {
			if a.phase != holding && !careless {
				return
			}
			r.writeLoose(loose + 1)
			if r.write(token, seen+1) {
				k.counts.add("gate: accepted a write")
			} else {
				k.counts.add("gate: refused a write")
			}
		})
	})
}
