package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// A check makes a finding of the facts; whose it is and which check, is filled in
// afterwards. The zero finding, unknown, says that the facts do not tell: whatever
// hides the outcome is found by another check.
var unknown backend.Finding

func well(format string, args ...any) backend.Finding {
	return backend.Finding{Severity: backend.SeverityOK, Text: fmt.Sprintf(format, args...)}
}

// but is v with another severity, and what to do.
func but(v backend.Finding, s backend.Severity, remedy string) backend.Finding {
	v.Severity, v.Remedy = s, remedy
	return v
}

// fails is the finding about a node that does not vote because of err.
func fails(err error, remedy string) backend.Finding {
	return backend.Finding{Severity: backend.SeverityFailure, Text: faultOf(err), Remedy: remedy, Err: err}
}

// faultOf is what err says, without saying that the node is unfit.
func faultOf(err error) string { return strings.TrimPrefix(err.Error(), backend.ErrUnfit.Error()+": ") }

// nodeChecks are what every node is put to. The names are for users: they are
// listed in cmd/redlock/README.md.
var nodeChecks = []struct {
	name string
	of   func(*facts, *nodeFacts) backend.Finding
}{
	{"reachable", checkReachable},
	{"login", checkLogin},
	{"permissions", checkPermissions},
	{"version", checkVersion},
	{"mode", checkMode},
	{"role", checkRole},
	{"distinct", checkDistinct},
	{"eviction", checkEviction},
	{"writes", checkWrites},
	{"keys", checkKeys},
	{"configuration", checkConfiguration},
	{"declared", checkDeclared},
	{"quarantine", checkQuarantine},
	{"counters", checkCounters},
	{"persistence", checkPersistence},
	{"time", checkTime},
	{"clock", checkClock},
}

// denied tells that the server refused for want of a right.
func denied(err error) bool {
	var c *node.CallError
	return errors.As(err, &c) && c.Denied
}

// says tells whether the node says who it is.
func (n *nodeFacts) says() bool { return n.last.err == nil }

// mode is what the server runs as, empty if unknown.
func (n *nodeFacts) mode() string {
	var c *node.CallError
	if errors.As(n.last.err, &c) && c.Mode != "" {
		return c.Mode
	}
	if n.says() {
		return n.last.reply.Mode
	}
	return cmp.Or(n.exam.Info["redis_mode"], n.exam.Info["server_mode"])
}

// isMaster tells that what the node says of itself is its own.
func (n *nodeFacts) isMaster() bool { return n.says() && n.last.reply.Role == "master" }

// nearest is the look of the shorter round trip.
func (n *nodeFacts) nearest() *look {
	if n.first.err == nil && (n.last.err != nil || n.first.took() < n.last.took()) {
		return &n.first
	}
	return &n.last
}

// took is how long the node takes to answer.
func (n *nodeFacts) took() time.Duration { return n.nearest().took() }

func checkReachable(f *facts, n *nodeFacts) backend.Finding {
	const lost = "start the server, or see to its address, its port, TLS (rediss://) and the network between"
	var late net.Error
	switch err := n.last.err; {
	case err == nil:
		took, limit := n.took(), f.cfg.timeout(f.cfg.MaxTTL)
		v := well("answers in %v", took.Round(10*time.Microsecond))
		if took > limit {
			v.Text += fmt.Sprintf(", and votes are waited for %v at most", limit)
			return but(v, backend.SeverityWarning, "raise the node timeout of the clients, or take a node that is nearer or less busy")
		}
		return v
	case errors.As(err, &late) && late.Timeout():
		return fails(errSilent, lost)
	case n.examErr != nil && !denied(n.examErr):
		return fails(n.examErr, lost)
	case denied(err), n.mode() != "standalone", len(n.exam.WrongType) > 0:
		return well("answers") // what it refuses, another check says
	}
	return fails(n.last.err, "see what the server says, and its log")
}

// rule is where the rights that a user needs are written down.
const rule = "the rule in docs/operations.md"

func checkLogin(_ *facts, n *nodeFacts) backend.Finding {
	switch {
	case denied(n.examErr):
		return fails(notPermitted(n.examErr), "correct user and password in the URL of the node, or let the user in: "+rule)
	case n.examErr != nil:
		return unknown
	}
	return well("the server lets the user in")
}

// lack is what the lack of a right means for those who use the node.
type lack struct {
	severity backend.Severity
	means    string
}

// lacks has the commands without which a node votes all the same, if it has
// greeted us. All others are needed for every lock.
var lacks = map[string]lack{
	"EVAL":        {backend.SeverityHint, "only EVALSHA is used"},
	"EVALSHA":     {backend.SeverityHint, "each call sends the whole script"},
	"SCRIPT LOAD": {backend.SeverityHint, "each call sends the whole script"},
	"HGETALL":     {backend.SeverityWarning, "other nodes' quarantines cannot end with counters that are sure"},
	"SCAN":        {backend.SeverityHint, "redlock list does not work"},
	"GETRANGE":    {backend.SeverityHint, "redlock list does not work"},
}

func checkPermissions(_ *facts, n *nodeFacts) backend.Finding {
	switch {
	case n.examErr != nil, n.mode() == "sentinel":
		return unknown
	case len(n.exam.Denied) == 0 && denied(n.last.err):
		return fails(notPermitted(n.last.err), "give the user the rights of "+rule)
	case len(n.exam.Denied) == 0:
		return well("all commands that are used are permitted")
	}
	v := backend.Finding{Severity: backend.SeverityHint}
	var commands, onKeys, means []string
	for _, d := range n.exam.Denied {
		l, ok := lacks[d.Command]
		if !ok || denied(n.last.err) {
			v.Severity, v.Err = backend.SeverityFailure, notPermitted(errors.New(d.Err))
		} else if l.severity == backend.SeverityWarning && v.Severity == backend.SeverityHint {
			v.Severity = l.severity
		}
		if ok && !denied(n.last.err) && !slices.Contains(means, l.means) {
			means = append(means, l.means)
		}
		if d.OnKeys {
			onKeys = append(onKeys, d.Command)
		} else {
			commands = append(commands, d.Command)
		}
	}
	var texts []string
	if len(commands) > 0 {
		texts = append(texts, "not permitted: "+strings.Join(commands, ", "))
	}
	if len(onKeys) > 0 {
		texts = append(texts, "not permitted on the keys and channels of the namespace: "+strings.Join(onKeys, ", "))
	}
	v.Text = strings.Join(append(texts, means...), "; ")
	v.Remedy = "give the user the rights of " + rule
	return v
}

func checkVersion(_ *facts, n *nodeFacts) backend.Finding {
	if !n.says() {
		return unknown
	}
	if e := tooOld(n.last.reply); e != nil {
		return fails(e, fmt.Sprintf("upgrade the server to version %d.0 or later", minVersion))
	}
	return well("%s", n.last.reply.Version)
}

func checkMode(_ *facts, n *nodeFacts) backend.Finding {
	mode := n.mode()
	if mode == "" {
		return unknown
	}
	if e := wrongMode(mode); e != nil {
		return fails(e, "take a server that stands alone: cluster-enabled no, and no sentinel")
	}
	return well("a server that stands alone")
}

func checkRole(f *facts, n *nodeFacts) backend.Finding {
	if !n.says() {
		return unknown
	}
	if e := f.backend.replica(n.last.reply); e != nil {
		return fails(e, "take an independent master in its place; a replica forgets what its master had not sent it yet")
	}
	return well("master")
}

func checkDistinct(f *facts, n *nodeFacts) backend.Finding {
	if !n.says() {
		return unknown
	}
	for _, other := range f.nodes {
		if other == n {
			break
		}
		if other.says() && other.last.reply.RunID == n.last.reply.RunID {
			return fails(sameServer(other.name), "take each server into the list once, under one address")
		}
	}
	return well("run_id %s", n.last.reply.RunID)
}

func checkEviction(_ *facts, n *nodeFacts) backend.Finding {
	if !n.says() {
		return unknown
	}
	r := n.last.reply
	if e := evicts(r); e != nil {
		return fails(e, "CONFIG SET maxmemory-policy noeviction, and the same in the server's configuration file")
	}
	if r.MaxMemory == 0 {
		return well("no maxmemory")
	}
	return well("maxmemory %d bytes, %s", r.MaxMemory, r.MaxMemoryPolicy)
}

func checkWrites(_ *facts, n *nodeFacts) backend.Finding {
	switch {
	case n.examErr != nil, !n.isMaster(), deniedCommand(n, "SET"):
		return unknown
	case n.exam.NoWrites != "":
		return fails(fmt.Errorf("server refuses to write: %s", n.exam.NoWrites),
			"OOM: make room or raise maxmemory; MISCONF: mend the disk; NOREPLICAS: lower min-replicas-to-write")
	}
	return well("the server takes writes")
}

func deniedCommand(n *nodeFacts, command string) bool {
	return slices.ContainsFunc(n.exam.Denied, func(d node.Denial) bool { return d.Command == command })
}

func checkKeys(f *facts, n *nodeFacts) backend.Finding {
	if n.examErr != nil {
		return unknown
	}
	odd := n.exam.WrongType
	if guard := n.last.reply.Guard; n.isMaster() && guard != "" {
		if _, ok := node.ParseGuard(guard); !ok {
			odd = append(slices.Clone(odd), f.backend.keys.Guard())
		}
	}
	if len(odd) > 0 {
		v := fails(fmt.Errorf("%w: %s", backend.ErrForeignKey, strings.Join(odd, ", ")),
			"find out who writes there, give the locks a server or database of their own, and DEL the key; the node then sits out a quarantine")
		if n.says() && slices.Equal(odd, []string{f.backend.keys.Quarantine()}) {
			v.Severity, v.Err = backend.SeverityWarning, nil // it votes, until it is in one
		}
		return v
	}
	return well("guard, quarantine and counters are as they should be")
}

// standing is how the node stands to our configuration, if that can be told.
func (n *nodeFacts) standing() node.Standing {
	if !n.isMaster() {
		return ""
	}
	r := n.last.reply
	if _, ok := node.ParseGuard(r.Guard); r.Guard != "" && !ok {
		return ""
	}
	return r.Standing
}

func checkConfiguration(f *facts, n *nodeFacts) backend.Finding {
	switch n.standing() {
	case "", node.StandingNew:
		return unknown
	case node.StandingMismatch:
		err := f.backend.mismatch(n.last.reply.Guard)
		if isOutdated(err) {
			return fails(err, "a change of configuration has passed the node by: run redlock init --reconfigure again")
		}
		return fails(err, "give all clients of these nodes the same list, quorum, max-ttl and kind of keys (redlock init --reconfigure "+
			"changes those of the nodes); if only the addresses are written differently, set cluster")
	}
	if n.blank {
		return unknown
	}
	return well("the node's is ours")
}

func checkDeclared(f *facts, n *nodeFacts) backend.Finding {
	switch n.standing() {
	case "":
		return unknown
	case node.StandingNew:
		e := &quarantinedError{why: whyNew, left: core.QuarantineTime(f.cfg.MaxTTL, f.cfg.DriftRate, f.others(n))}
		if f.others(n) {
			e.why = whyLost
		}
		return fails(e, f.blankRemedy(n))
	}
	return well("the node is not blank")
}

// others tells whether another node has our configuration.
func (f *facts) others(n *nodeFacts) bool {
	return slices.ContainsFunc(f.nodes, func(o *nodeFacts) bool {
		s := o.standing()
		return o != n && !o.blank && (s == node.StandingOK || s == node.StandingDurable || s == node.StandingQuarantined)
	})
}

const (
	waitOut = "wait while clients use the nodes: the time that one of them watches counts, and then the node votes by itself; " +
		"redlock init --force ends it now, if surely nobody holds a lease that the node granted"
	declare = "if it is new: redlock init"
)

const lookAtDurable = "let the user run CONFIG GET (+config|get), or run redlock init as one who may: then the node votes"

func (f *facts) blankRemedy(n *nodeFacts) string {
	if f.others(n) {
		return "others have records, so this node has lost its memory or is new among them: " + waitOut
	}
	return declare + "; if it has lost its memory: " + waitOut
}

func checkQuarantine(f *facts, n *nodeFacts) backend.Finding {
	switch n.standing() {
	case node.StandingOK:
		return well("none: the node has forgotten nothing")
	case node.StandingDurable:
		if n.examErr != nil {
			return unknown
		}
		why := forgets(n.exam)
		if errors.Is(why, backend.ErrNotPermitted) {
			return fails(why, lookAtDurable)
		}
		if why != nil {
			q := &quarantinedError{why: whyRestarted, left: core.QuarantineTime(f.cfg.MaxTTL, f.cfg.DriftRate, true)}
			return fails(fmt.Errorf("%w after the first client has met it: it is marked as durable, and is not (%w)", q, why), waitOut)
		}
		return well("none: the node restarted, and is durable")
	case node.StandingQuarantined:
	default:
		return unknown
	}
	remedy := waitOut
	switch {
	case n.fenced:
		remedy = "see whether somebody is at it; if not, run redlock init --reconfigure again"
	case n.blank:
		remedy = f.blankRemedy(n)
	case n.left == 0 && f.cfg.CounterOnly:
		remedy = "too few nodes can tell the tokens given out, and counter-only is set: mend the other nodes"
	}
	v := fails(n.quarantined, remedy)
	if n.last.reply.Changed {
		v.Text += " after the first client has met it"
	}
	return v
}

func checkCounters(f *facts, n *nodeFacts) backend.Finding {
	switch {
	case n.standing() != node.StandingOK:
		return unknown
	case n.last.reply.ByClock:
		return backend.Finding{
			Severity: backend.SeverityWarning,
			Text:     "after a loss too few nodes could tell the tokens given out: their order rests on the node's clock",
			Remedy: fmt.Sprintf("if the floor (HGET %[1]s floor) is above every token that your gates have seen, the order is right: "+
				"HDEL %[1]s clock; if not, raise it first (HSET)", f.backend.keys.Tokens()),
		}
	}
	return well("they have forgotten nothing")
}

func checkPersistence(f *facts, n *nodeFacts) backend.Finding {
	info := n.exam.Info
	if n.examErr != nil || info["aof_enabled"] == "" {
		return unknown
	}
	kept := "AOF off"
	if info["aof_enabled"] == "1" {
		kept = "AOF on"
		if fsync := n.exam.Config["appendfsync"]; fsync != "" {
			kept = "AOF " + fsync
		}
	}
	switch save, ok := n.exam.Config["save"]; {
	case !ok:
		kept += ", snapshots unknown (CONFIG GET is not permitted)"
	case save == "":
		kept += ", no snapshots"
	default:
		kept += ", snapshots at " + save
	}
	v := well("%s; a restart costs a quarantine of %v", kept, core.QuarantineTime(f.cfg.MaxTTL, f.cfg.DriftRate, true))
	if n.says() && n.last.reply.Durable {
		if why := forgets(n.exam); why != nil {
			v.Text += fmt.Sprintf(", although the node is marked as durable: %s", faultOf(why))
			return but(v, backend.SeverityWarning, "set appendonly yes and appendfsync always, and let the user run CONFIG GET (+config|get); or redlock init --durable=false")
		}
		v.Text = kept + "; a restart costs nothing: the node is durable"
	}
	for field, what := range map[string]string{
		"rdb_last_bgsave_status": "snapshot", "aof_last_write_status": "write to the AOF", "aof_last_bgrewrite_status": "rewrite of the AOF",
	} {
		if info[field] == "err" {
			v.Text = fmt.Sprintf("the last %s failed; %s", what, v.Text)
			return but(v, backend.SeverityWarning, "see to the disk, or switch persistence off (save '', appendonly no): a server that only has locks needs none")
		}
	}
	return v
}

// farOff is how far a clock may be off before it is worth knowing.
const farOff = 250 * time.Millisecond

func checkTime(f *facts, n *nodeFacts) backend.Finding {
	median, ok := f.medianOffset()
	if !ok || n.nearest().err != nil {
		return unknown
	}
	l := n.nearest()
	off := l.offset() - median
	v := well("%v off the median of all nodes", off.Round(time.Millisecond))
	if off.Abs()-l.took()/2 > farOff {
		return but(v, backend.SeverityHint, "no lock depends on the time of day, but logs do: synchronise the clock, slowly (chrony, NTP)")
	}
	return v
}

// offset is how far the node's clock, as time since 1970, is ahead of our own.
func (l *look) offset() time.Duration {
	return time.Duration(l.reply.Time)*time.Microsecond - time.Duration(l.sent+l.received)/2
}

// medianOffset is the middle of the nodes' offsets.
func (f *facts) medianOffset() (time.Duration, bool) {
	var all []time.Duration
	for _, n := range f.nodes {
		if l := n.nearest(); l.err == nil {
			all = append(all, l.offset())
		}
	}
	slices.Sort(all)
	if len(all) == 0 {
		return 0, false
	}
	low, high := all[(len(all)-1)/2], all[len(all)/2]
	return low + (high-low)/2, true
}

// runsOff is by how much a clock may go faster or slower than ours.
const runsOff = 0.01

func checkClock(_ *facts, n *nodeFacts) backend.Finding {
	if n.first.err != nil || n.last.err != nil {
		return unknown
	}
	// When the node read its clocks is known up to the round trips.
	passed := float64(n.last.reply.Time-n.first.reply.Time) * 1e3
	least := passed / float64(n.last.received.Sub(n.first.sent))
	most := passed / float64(n.last.sent.Sub(n.first.received))
	v := well("runs as fast as ours")
	switch {
	case passed < 0:
		v.Text = "went back"
	case passed == 0:
		v.Text = "stands still"
	case least > 1+runsOff:
		v.Text = fmt.Sprintf("runs fast, by %.1f %% at least: leases end early on this node", 100*(least-1))
	case most < 1-runsOff:
		v.Text = fmt.Sprintf("runs slow, by %.1f %% at least: leases end late on this node", 100*(1-most))
	default:
		return v
	}
	return but(v, backend.SeverityWarning, "see to the clock of that machine (clock source, chrony or NTP, the host of a virtual machine) before you rely on the node")
}

// commonChecks are about all nodes together.
var commonChecks = []struct {
	name string
	of   func(*facts, []backend.Vote) backend.Finding
}{
	{"nodes", checkNodes},
	{"local time", checkLocalTime},
	{"leases", checkLeases},
	{"votes", checkVotes},
}

func checkNodes(f *facts, _ []backend.Vote) backend.Finding {
	n, q := len(f.nodes), f.cfg.Quorum
	v := well("%d, quorum %d: up to %d may fail", n, q, n-q)
	switch {
	case q > core.Majority(n):
		v.Text += fmt.Sprintf("; wider than the majority, so that %d may forget", max(2*q-n-1, 0))
		return but(v, backend.SeverityHint, "nothing, if that is what you want: fewer may fail")
	case n%2 == 0:
		v.Text += ", no more than with one node less"
		return but(v, backend.SeverityHint, "add a node, or leave one out")
	}
	return v
}

func checkLocalTime(f *facts, _ []backend.Vote) backend.Finding {
	var all []time.Duration
	for _, n := range f.nodes {
		if l := n.nearest(); l.err == nil {
			all = append(all, time.UnixMicro(l.reply.Time).Sub(l.wall.Add(l.took()/2)))
		}
	}
	if len(all) == 0 {
		return unknown
	}
	slices.Sort(all)
	off := -all[len(all)/2]
	v := well("this machine is %v off the nodes", off.Round(time.Millisecond))
	if off.Abs() > farOff {
		return but(v, backend.SeverityHint, "no lock depends on the time of day, but logs do: synchronise the clock of this machine or those of the nodes")
	}
	return v
}

func checkLeases(f *facts, _ []backend.Vote) backend.Finding {
	const shown = 3
	switch {
	case len(f.endless) > 0:
		var names []string
		for _, name := range f.endless[:min(len(f.endless), shown)] {
			names = append(names, fmt.Sprintf("%q", name))
		}
		if more := len(f.endless) - shown; more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		v := well("their keys have no TTL, and never end by themselves: %s", strings.Join(names, ", "))
		return but(v, backend.SeverityWarning, "redlock list says on which nodes, and how to remove each")
	case f.listError != nil:
		return unknown
	}
	return well("every key ends by itself")
}

func checkVotes(f *facts, votes []backend.Vote) backend.Finding {
	voting := countOutcome(votes, backend.OutcomeGranted)
	v := well("%d of %d nodes vote, %d are needed", voting, len(votes), f.cfg.Quorum)
	if voting < f.cfg.Quorum {
		return but(v, backend.SeverityFailure, "mend the nodes above: until then nothing can be locked")
	}
	return v
}
