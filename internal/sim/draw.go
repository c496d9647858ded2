package sim

import (
	"math/rand/v2"
	"time"
)

// DrawScript makes the faults of a run from its configuration. Each script
// leaves out some kinds of fault altogether: the others then get further.
func DrawScript(c Config) Script {
	d := drawer{Config: c, rnd: stream(c.Seed, streamScript), stepped: make([]time.Duration, c.Nodes)}
	for i := range d.stepped {
		d.stepped[i] = -2 * c.MaxTTL
	}
	d.clocks()
	kinds := []func(){
		d.partition, d.partition, d.loss, d.slow, d.pause, d.stall, d.crash, d.freeze, d.down, d.restart, d.rate, d.step, d.operator,
	}
	d.rnd.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:2+d.rnd.IntN(len(kinds)-2)]
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
	return s
}

type drawer struct {
	Config
	rnd     *rand.Rand
	now     time.Duration
	script  Script
	stepped []time.Duration // by node, when its clock last jumped
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

// restart leaves the place for restarts without memory, which need the
// quarantine.
func (d *drawer) restart() { d.add(0, Fault{Verb: Restart, To: d.node()}) }

func (d *drawer) operator() {
	verb := Break
	if d.Wild {
		verb = pick(d.rnd, Break, Free, Free, Free)
	}
	d.add(0, Fault{Verb: verb, To: End{'x', d.rnd.IntN(d.Names)}})
}

// step lets a clock jump: by less than what is allowed for, and not again
// while a lease from before may live; or, in a wild run, as far as it likes.
func (d *drawer) step() {
	n := d.node()
	if d.Wild {
		much := pick(d.rnd, time.Second, 10*time.Second, time.Hour)
		d.add(0, Fault{Verb: Step, To: n, For: d.upTo(2*much) - much})
		return
	}
	if d.now-d.stepped[n.Index] < stepApart(d.Config) {
		return
	}
	d.stepped[n.Index] = d.now
	limit := smallStep(d.Config)
	d.add(0, Fault{Verb: Step, To: n, For: pick(d.rnd, limit, limit, -limit, d.upTo(limit))})
}

// smallStep is the longest jump of a clock that leases allow for.
func smallStep(c Config) time.Duration { return min(250*time.Millisecond, c.MinTTL/20) }

// stepApart is how far apart the jumps of one clock must be so that no lease
// suffers two.
func stepApart(c Config) time.Duration { return 2 * c.MaxTTL }

// Broken returns what in a script leases cannot bear, or "": with such a fault
// two clients may believe to hold one name. Forgets tells that a node may lose
// its counters, on which even tokens rest.
func Broken(c Config, s Script) (why string, forgets bool) {
	last := map[int]time.Duration{}
	for _, f := range s {
		bad := false
		switch f.Verb {
		case Free:
			bad = true
		case Restart:
			bad, forgets = f.Forget, forgets || f.Forget
		case Rate:
			bad = max(f.Much, -f.Much) > c.Drift.Rate
		case Step:
			before, again := last[f.To.Index]
			bad = max(f.For, -f.For) > smallStep(c) || again && f.At-before < stepApart(c)
			last[f.To.Index] = f.At
		}
		if bad && why == "" {
			why = f.String()
		}
	}
	return why, forgets
}
