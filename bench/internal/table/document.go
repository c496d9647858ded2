package table

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"example.com/redlock/bench/internal/load"
)

// document is the whole of docs/benchmarks.md.
func document(m machine, rounds int, d time.Duration, list []section) string {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n" +
		"Written by `make bench`; do not edit. What is compared, and how, is at the end.\n\n")
	fmt.Fprintf(&b, "| | |\n|---|---|\n| processor | %s, %d cores |\n| system | %s, %s |\n| servers | %d × %s, on the same machine |\n"+
		"| commit | %s |\n| modules | %s |\n| runs | rounds: %d, each run %v; medians |\n| load average before and after | %s, %s |\n",
		m.cpu, m.cores, m.system, runtime.Version(), nodes, m.server, m.commit, strings.Join(m.modules, ", "),
		rounds, d, m.loadBefore, m.loadAfter)
	b.WriteString("\nClients and servers share the processors: the figures compare locks with each other, and say little " +
		"about a network of machines.\n")
	for _, s := range list {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", s.title, s.text)
		for _, r := range s.rows {
			if s.frozen {
				r.writeFrozen(&b)
			} else {
				r.write(&b)
			}
		}
	}
	b.WriteString(verdict(list))
	b.WriteString(method)
	return b.String()
}

const header = "| lock | cycles/s | lock p50 | p99 | max | unlock p50 | p99 | fewest–most | errors | overlaps |"

// write adds the table of a row that compares us with peers.
func (r row) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n**%s**\n\n%s ours ÷ its rate | its p99 ÷ ours |\n|---|%s\n", r.name, header, strings.Repeat("---:|", 11))
	our := r.ours()
	for i, c := range r.runs {
		rate, p99 := "", ""
		if our >= 0 && our != i {
			rate = ratioText(r.results[our], r.results[i], cycles)
			p99 = ratioText(r.results[i], r.results[our], lockP99)
		}
		fmt.Fprintf(b, "%s %s | %s |\n", line(c.Peer, r.results[i]), rate, p99)
	}
}

// writeFrozen adds the table of a row in which each lock is compared with itself: the
// runs with frozen nodes follow the one without.
func (r row) writeFrozen(b *strings.Builder) {
	fmt.Fprintf(b, "\n**%s**\n\n%s rate ratio | lock p99 ratio | unlock p99 ratio |\n|---|%s\n", r.name, header, strings.Repeat("---:|", 12))
	var alive []load.Result
	for i, c := range r.runs {
		rate, lock, unlock := "", "", ""
		if c.Freeze == 0 {
			alive = r.results[i]
		} else {
			rate = ratioText(r.results[i], alive, cycles)
			lock = ratioText(r.results[i], alive, lockP99)
			unlock = ratioText(r.results[i], alive, unlockP99)
		}
		fmt.Fprintf(b, "%s %s | %s | %s |\n", line(fmt.Sprintf("%s, %d frozen", c.Peer, c.Freeze), r.results[i]), rate, lock, unlock)
	}
}

// line is the part of a table's line that all tables have.
func line(name string, results []load.Result) string {
	field := func(of func(load.Result) float64) float64 { return median(values(results, of)) }
	sum := func(of func(load.Result) int64) (n int64) {
		for _, r := range results {
			n += of(r)
		}
		return n
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %.0f–%.0f | %d | %d |", name,
		count(field(cycles)), span(field(func(r load.Result) float64 { return r.LockP50Us })), span(field(lockP99)),
		span(field(func(r load.Result) float64 { return r.LockMaxUs })),
		span(field(func(r load.Result) float64 { return r.UnlockP50Us })), span(field(unlockP99)),
		field(func(r load.Result) float64 { return float64(r.WorkerMin) }),
		field(func(r load.Result) float64 { return float64(r.WorkerMax) }),
		sum(func(r load.Result) int64 { return r.Errors }), sum(func(r load.Result) int64 { return r.Overlaps }))
}

func cycles(r load.Result) float64    { return r.CyclesPerS }
func lockP99(r load.Result) float64   { return r.LockP99Us }
func unlockP99(r load.Result) float64 { return r.UnlockP99Us }

// ours is the number of the run that is this project's, or -1.
func (r row) ours() int {
	return slices.IndexFunc(r.runs, func(c load.Config) bool { return c.Peer == ours })
}

// verdict lists every comparison that a peer wins, so that no reader has to
// search for it.
func verdict(list []section) string {
	var slower []string
	for _, s := range list {
		for _, r := range s.rows {
			our := r.ours()
			if s.frozen || our < 0 {
				continue
			}
			for i, c := range r.runs {
				if c.Peer == ours || c.Peer == raw {
					continue
				}
				where := fmt.Sprintf("%s, %s: ", s.title, r.name)
				if rate := ratio(r.results[our], r.results[i], cycles); rate < 1 {
					slower = append(slower, fmt.Sprintf("%s%.2f times the rate of %s.", where, rate, c.Peer))
				}
				if p99 := ratio(r.results[our], r.results[i], lockP99); p99 > 1 {
					slower = append(slower, fmt.Sprintf("%slock p99 %.2f times that of %s.", where, p99, c.Peer))
				}
			}
		}
	}
	text := "\n## Where we are slower\n\n"
	if len(slower) == 0 {
		return text + "Nowhere in these tables than redsync. `raw` is a bound, not a lock to use.\n"
	}
	return text + "* " + strings.Join(slower, "\n* ") + "\n\n`raw` is a bound, not a lock to use.\n"
}

// ratio is the median of the ratios of a to b, round by round: both runs of a
// round met the same machine.
func ratio(a, b []load.Result, of func(load.Result) float64) float64 {
	return median(ratios(a, b, of))
}

func ratios(a, b []load.Result, of func(load.Result) float64) []float64 {
	var list []float64
	for i := range min(len(a), len(b)) {
		if below := of(b[i]); below > 0 {
			list = append(list, of(a[i])/below)
		}
	}
	return list
}

// ratioText is the median ratio, and between which it lay.
func ratioText(a, b []load.Result, of func(load.Result) float64) string {
	list := ratios(a, b, of)
	if len(list) == 0 {
		return "–"
	}
	return fmt.Sprintf("**%.2f** (%.2f–%.2f)", median(list), slices.Min(list), slices.Max(list))
}

func values(results []load.Result, of func(load.Result) float64) []float64 {
	var list []float64
	for _, r := range results {
		list = append(list, of(r))
	}
	return list
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// span writes microseconds as people read them.
func span(us float64) string {
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 100_000:
		return fmt.Sprintf("%.1f ms", us/1000)
	}
	return fmt.Sprintf("%.0f ms", us/1000)
}

func count(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

const method = `
## What is compared

* **redlock** is this project with default options, its log off. TTL 10 s, node timeout 50 ms, leases renewed, tokens and
  the check of each node's identity included.
* **redsync** is go-redsync over go-redis, **redsync-failfast** the same with ` + "`WithFailFast(true)`" + `. Set besides its
  defaults: the same TTL of 10 s; as many tries as fit into the run, where its default of 32 would give up on a contended
  name; ` + "`ContextTimeoutEnabled`" + `, without which go-redis ignores the node timeout that redsync asks for (500 ms);
  the same timeout for Unlock, for which redsync has none of its own; go-redis's own pool of ten connections for each
  core, but one for every goroutine where nodes are 20 ms away: whichever is the faster for redsync. Its retry delay is its
  default of 50 to 250 ms, which is what its times on one name for all consist of.
* **raw** is the bare algorithm: SET NX PX on all nodes at once, a quorum, compare and delete, pipelined over one
  connection a node; no tokens, renewal, timeouts or checks. It bounds from above what can be reached on this machine.

A cycle is a lock taken and given back. Times are those of calls that succeeded, from a histogram over all goroutines and
processes that is exact to 0.8 %; the longest lock also counts waits that the end of the run cut off. Calls that failed are
under errors, never left out. For each run the servers are started anew and all processes warm up for 300 ms and begin
together. Ratios are the median of the rounds' own ratios, with the least and the greatest in brackets; above 1 we are
ahead, but for those of frozen nodes, which compare each lock with itself.

**Overlaps.** Holders of the contended name are counted in memory that all processes share: a holder adds one after its
lock call has returned and subtracts one before it unlocks. Both are atomic, so no clock is involved: whoever finds on
coming in that it is not alone has met another holder, and no two holders can miss each other. A lock that locks nothing
(` + "`-peer naive`" + `) is caught by it; a test sees to that.

One run by hand: ` + "`go run ./bench -peer redsync -workload hot -c 8 -procs 4 -hold 1ms -d 4s -json`" + `.
`
