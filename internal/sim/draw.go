package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// DrawScript makes the faults of a run from its configuration. Each script
// leaves out some kinds of fault altogether: the others then get further.
func DrawScript(c Config) Script {
	d := drawer{Config: c, rnd: stream(c.Seed, streamScript)}
	d.clocks()
	kinds := d.some(2,
		d.partition, d.partition, d.loss, d.slow, d.pause, d.stall, d.crash, d.freeze, d.down, d.rate, d.step, d.wall, d.operator)
	if d.rnd.IntN(2) == 0 {
		kinds = append(kinds, d.some(1, d.restart, d.restart, d.restore, d.promote, d.forget, d.flush, d.boot)...)
	}
	if d.Wild {
		kinds = append(kinds, d.operator, d.step, d.stall)
	}
	every := pick(d.rnd, c.MinTTL/2, c.MinTTL, c.MaxTTL/2)
	for d.now < c.Turmoil {
		pick(d.rnd, kinds...)()
		d.now += d.upTo(2 * every)
	}
	// The later faults of a pair were drawn with the earlier.
	s, err := Parse(d.script.String())
	if err != nil {
		panic(err)
	}
	if !c.Wild {
		for i := unbearable(c, s); i >= 0; i = unbearable(c, s) {
			s = slices.Delete(s, i, i+1)
		}
	}
	return s
}

// some draws at least least of kinds.
func (d *drawer) some(least int, kinds ...func()) []func() {
	d.rnd.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	return kinds[:least+d.rnd.IntN(len(kinds)-least)]
}

type drawer struct {
	Config
	rnd    *rand.Rand
	now    time.Duration
	script Script
	// spared is until when no node loses anything more: there must be something to
	// lose.
	spared time.Duration
}

func (d *drawer) add(after time.Duration, f Fault) {
	f.At = d.now + after
	d.script = append(d.script, f)
}

// upTo draws a length of whole milliseconds.
func (d *drawer) upTo(limit time.Duration) time.Duration {
	return time.Duration(1+d.rnd.Int64N(max(limit.Milliseconds(), 1))) * time.Millisecond
}

func (d *drawer) node() End   { return End{'n', d.rnd.IntN(d.Nodes)} }
func (d *drawer) client() End { return End{'c', d.rnd.IntN(d.Clients)} }

// part draws a part of 1 in steps that are printed exactly.
func (d *drawer) part(limit float64) float64 {
	return float64(d.rnd.IntN(int(limit*1000)+1)) / 1000
}

// clocks lets some nodes' clocks run at the bounds from the start.
func (d *drawer) clocks() {
	for i := range d.Nodes {
		if d.rnd.IntN(2) == 0 {
			much := pick(d.rnd, d.Drift.Rate, d.Drift.Rate, -d.Drift.Rate, d.part(d.Drift.Rate))
			d.add(0, Fault{Verb: Rate, To: End{'n', i}, Much: much})
		}
	}
}

func (d *drawer) rate() {
	much := pick(d.rnd, d.Drift.Rate, -d.Drift.Rate, 0, d.part(d.Drift.Rate))
	d.add(0, Fault{Verb: Rate, To: d.node(), Much: much})
}

func (d *drawer) partition() {
	from, to := d.client(), d.node()
	switch d.rnd.IntN(4) {
	case 0:
		from.Index = -1
	case 1:
		to.Index = -1
	}
	if d.rnd.IntN(2) == 0 {
		from, to = to, from
	}
	d.add(0, Fault{Verb: Partition, From: from, To: to})
	d.add(d.upTo(d.MaxTTL), Fault{Verb: Heal, From: from, To: to})
}

func (d *drawer) slow() {
	from, to := d.client(), d.node()
	if d.rnd.IntN(2) == 0 {
		from, to = to, from
	}
	d.add(0, Fault{Verb: Slow, From: from, To: to, For: d.upTo(2 * d.timeout(d.MinTTL))})
	d.add(d.upTo(2*d.MaxTTL), Fault{Verb: Slow, From: from, To: to})
}

func (d *drawer) loss() {
	d.add(0, Fault{Verb: pick(d.rnd, Drop, Dup, Reorder), Much: d.part(pick(d.rnd, 0, 0.02, 0.3))})
}

func (d *drawer) pause() {
	d.add(0, Fault{Verb: Pause, To: d.client(), For: d.upTo(pick(d.rnd, d.MinTTL, d.MaxTTL, 2*d.MaxTTL))})
}

func (d *drawer) stall() {
	d.add(0, Fault{Verb: Stall, Much: d.part(0.02)})
	d.add(d.upTo(d.MaxTTL), Fault{Verb: Stall})
}

func (d *drawer) crash() { d.add(0, Fault{Verb: Crash, To: d.client()}) }

func (d *drawer) freeze() {
	n := d.node()
	d.add(0, Fault{Verb: Freeze, To: n})
	d.add(d.upTo(d.MaxTTL), Fault{Verb: Thaw, To: n})
}

func (d *drawer) down() {
	n := d.node()
	d.add(0, Fault{Verb: Down, To: n})
	d.add(d.upTo(d.MaxTTL), Fault{Verb: Up, To: n})
}

// lose has f strike a node, or several one after the other.
func (d *drawer) lose(f Fault) {
	if d.now < d.spared {
		return
	}
	d.spared = d.now + d.upTo(4*d.MaxTTL)
	after := time.Duration(0)
	for range pick(d.rnd, 1, 1, 1, 1, 2, d.Nodes) {
		if f.To = d.node(); d.now+after < d.Turmoil {
			d.add(after, f)
		}
		after += d.upTo(d.MaxTTL / 4)
	}
	if d.rnd.IntN(4) == 0 {
		// Somebody who watches the quarantine then has his wall clock put right.
		d.add(d.upTo(d.MaxTTL), Fault{Verb: Wall, To: d.client(), For: time.Hour})
	}
}

func (d *drawer) restart() { d.lose(Fault{Verb: Restart}) }
func (d *drawer) forget()  { d.lose(Fault{Verb: Restart, Forget: true}) }
func (d *drawer) flush()   { d.lose(Fault{Verb: Flush}) }
func (d *drawer) restore() { d.lose(Fault{Verb: Restore, For: d.ago()}) }
func (d *drawer) promote() { d.lose(Fault{Verb: Promote, For: d.ago()}) }

// ago draws how old the data is that a node comes back with.
func (d *drawer) ago() time.Duration { return d.upTo(pick(d.rnd, d.MinTTL/2, d.MaxTTL, 3*d.MaxTTL)) }

// boot has a machine start with a wrong clock, which is put right later: while the
// node is blank, nothing on it can expire.
func (d *drawer) boot() {
	n, much := d.node(), pick(d.rnd, time.Minute, time.Hour)
	d.add(0, Fault{Verb: Restart, To: n, Forget: true})
	d.add(d.upTo(d.MaxTTL), Fault{Verb: Step, To: n, For: much})
	d.add(d.MaxTTL+d.upTo(d.MaxTTL), Fault{Verb: Step, To: n, For: -much})
}

// wall has a client's time of day jump. No lease depends on it.
func (d *drawer) wall() {
	much := pick(d.rnd, time.Second, time.Minute, time.Hour)
	d.add(0, Fault{Verb: Wall, To: d.client(), For: d.upTo(2*much) - much})
}

func (d *drawer) operator() {
	verb := Break
	if d.Wild {
		verb = pick(d.rnd, Break, Free, Free, Free)
	}
	d.add(0, Fault{Verb: verb, To: End{'x', d.rnd.IntN(d.Names)}})
}

// step lets a clock jump: by what is allowed for; or, where the quorum is wide
// enough or the run is wild, as far as it likes.
func (d *drawer) step() {
	n, limit := d.node(), smallStep(d.Config)
	if wide := 2*d.Quorum-d.Nodes > 1; d.Wild || wide && d.rnd.IntN(2) == 0 {
		much := pick(d.rnd, time.Second, 10*time.Second, time.Hour)
		d.add(0, Fault{Verb: Step, To: n, For: d.upTo(2*much) - much})
		return
	}
	d.add(0, Fault{Verb: Step, To: n, For: pick(d.rnd, limit, limit, -limit, d.upTo(limit))})
}
