package quorum

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

const (
	// watchQuarantineEvery is how often the time that has passed is claimed.
	watchQuarantineEvery = time.Second
	// reportLimit bounds the wait for what other nodes say of their tokens.
	reportLimit = greetLimit / 2
)

// quarantine is what a peer knows of a node that does not vote.
type quarantine struct {
	*core.Quarantine
	guard string // what the node shows: the quarantine by name
	blank bool   // it has no configuration, and so no leases
	kept  bool   // its counters have forgotten nothing
	// need is how long it has to last at least because the configuration changed.
	need   time.Duration
	fenced bool // the change has not come to its end
	stuck  bool // it cannot be lifted, which was said
	// contested is why the node, which is blank, is not lifted into our configuration.
	contested error
}

// quarantinedError is why a node does not vote, and for how long.
type quarantinedError struct {
	why  string
	left time.Duration
	// guessed tells that left may turn out to be less: nobody has told yet how long
	// the leases may be that the node has forgotten.
	guessed bool
	stuck   bool // it lasts until other nodes vote
}

func (e *quarantinedError) Error() string {
	switch left := e.left.Round(100 * time.Millisecond); {
	case e.stuck:
		return e.why
	case e.guessed:
		return fmt.Sprintf("%s; votes in %v at most", e.why, left)
	default:
		return fmt.Sprintf("%s; votes in %v", e.why, left)
	}
}

// Why nodes are in quarantine. To declare a blank node helps only if all are new.
const (
	whyRestarted = "restarted, or was given other data"
	whyConf      = "was given another configuration"
	whyClock     = "clock moved, so that leases may have ended early"
	whyLost      = "lost its data"
	whyNew       = "blank: if it is new, declare it with init"
	whyBlank     = "blank: new, or lost its data"
	whyStuck     = "too few other nodes can tell the tokens given out, and CounterOnly is set"
)

func whyMoved(by time.Duration) string {
	return fmt.Sprintf("clock moved by %v, so that leases end at the wrong time", by.Round(time.Millisecond))
}

func (e *quarantinedError) Unwrap() error { return backend.ErrQuarantined }

// isStuck reports whether err is a quarantine that lasts until other nodes vote.
func isStuck(err error) bool {
	var q *quarantinedError
	return errors.As(err, &q) && q.stuck
}

// inTheWay says which nodes the quarantine of keeps an attempt from a quorum, why,
// and for how long.
func inTheWay(votes []backend.Vote, left time.Duration) error {
	var nodes []string
	var stuck, guessed bool
	for _, v := range votes {
		var q *quarantinedError
		if errors.As(v.Err, &q) {
			nodes = append(nodes, fmt.Sprintf("%s (%s)", v.Node, q.why))
			stuck, guessed = stuck || q.stuck, guessed || q.guessed
		}
	}
	end := fmt.Sprintf("enough nodes vote in %v", left.Round(100*time.Millisecond))
	switch {
	case stuck && left == 0:
		end = "wait for other nodes, or end it with init --force"
	case guessed:
		end += " at most"
	}
	return fmt.Errorf("%w: %s; %s", backend.ErrQuarantined, strings.Join(nodes, ", "), end)
}

// whyOut returns why a node in the quarantine q does not vote. asked tells that the
// other nodes have been asked whether they have records.
func (b *Backend) whyOut(q *quarantine, asked bool) error {
	e := &quarantinedError{why: whyRestarted, left: q.Left(b.clock.Awake())}
	switch {
	case q.fenced:
		return errFenced
	case q.contested != nil:
		return q.contested
	case q.stuck && e.left == 0:
		e.why, e.stuck = whyStuck, true
	case q.need > 0:
		e.why = whyConf
	case q.kept: // what else begins one leaves counters that may have forgotten something
		e.why = whyClock
	case q.blank && b.seen.Load() != nil:
		e.why = whyLost
	case q.blank && asked:
		e.why, e.guessed = whyNew, true
	case q.blank:
		e.why, e.guessed = whyBlank, true
	}
	return e
}

// whyOut returns why the node, which is in quarantine, does not vote.
func (p *peer) whyOut() error {
	asked := true
	for _, other := range p.backend.peers {
		if other == p {
			continue
		}
		select {
		case <-other.met:
		default:
			asked = false
		}
	}
	return p.backend.whyOut(p.quarantine, asked)
}

// errFenced is why a node does not vote, however long one waits.
var errFenced = fmt.Errorf("%w: its configuration is being changed; if that was interrupted, run init --reconfigure again",
	backend.ErrQuarantined)

// because says for the log what is waited for.
func (q *quarantine) because() string {
	switch {
	case q.fenced:
		return "because its configuration is being changed"
	case q.need > 0:
		return "because leases of another configuration may still be held"
	case q.kept:
		return "because leases may have ended early on it"
	}
	return "because it may have forgotten leases"
}

// serves reports whether the node does what k asks for while it does not vote.
func (q *quarantine) serves(k node.Kind) bool { return k.InQuarantine(q.blank) }

// newNonce returns a name for a quarantine.
func newNonce() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand since Go 1.24)
	return hex.EncodeToString(raw[:])
}

// newQuarantine returns what a reply says of a quarantine.
func (p *peer) newQuarantine(r node.HelloReply) *quarantine {
	shown, _ := node.ParseGuard(r.Guard)
	q := &quarantine{
		guard: r.Guard, blank: shown.Conf == node.NoConf, kept: r.Kept,
		need: time.Duration(r.Need) * time.Millisecond, fenced: r.Was != "",
	}
	q.Quarantine = core.NewQuarantine(p.backend.quarantineTime(q))
	q.Saw(p.backend.clock.Awake(), time.Duration(r.Credit)*time.Millisecond)
	return q
}

// quarantineTime is how long q has to last. A node without configuration had ours,
// if others have it, and was part of the change that they are sitting out.
func (b *Backend) quarantineTime(q *quarantine) time.Duration {
	need := q.need
	if q.blank {
		need = max(need, time.Duration(b.need.Load())*time.Millisecond)
	}
	return max(core.QuarantineTime(b.cfg.MaxTTL, b.cfg.DriftRate, !q.blank || b.seen.Load() != nil), need)
}

// enterQuarantine takes in that the node does not vote.
func (p *peer) enterQuarantine(r node.HelloReply) {
	now := p.backend.clock.Awake()
	if p.quarantine == nil || p.quarantine.guard != r.Guard {
		p.quarantine = p.newQuarantine(r)
		clear(p.counters) // they begin anew above a floor, which may be below what they were
		err := p.whyOut()
		p.log(slog.LevelWarn, "redlock: node does not vote, "+p.quarantine.because(), "node", p.node.Name(), "reason", err)
		p.tell(backend.Event{Kind: backend.EventNodeQuarantined, Took: p.quarantine.Left(now), Err: err})
	}
	p.quarantine.Saw(now, time.Duration(r.Credit)*time.Millisecond)
	p.armWatcher()
}

// leaveQuarantine takes in that the node votes.
func (p *peer) leaveQuarantine(r node.HelloReply) {
	if p.quarantine == nil {
		return
	}
	p.quarantine = nil
	clear(p.counters) // what an answer has told since it began is of before, too
	var basis error
	if r.ByClock {
		basis = errByClock
	}
	p.log(slog.LevelInfo, "redlock: node votes again", "node", p.node.Name(), "tokens_by_clock", r.ByClock)
	p.event(backend.EventNodeLifted, basis)
}

var errByClock = errors.New("too few nodes could tell the tokens given out: their order rests on clocks")

// armWatcher makes watch run in a while, or when the quarantine is over.
func (p *peer) armWatcher() {
	if p.watcher != nil || p.shut {
		return
	}
	in := watchQuarantineEvery
	p.quarantine.Require(p.backend.quarantineTime(p.quarantine))
	if left := p.quarantine.Left(p.backend.clock.Awake()); left > 0 {
		in = min(in, left+time.Millisecond)
	}
	p.watcher = time.AfterFunc(in, func() { p.watch(p.backend.ctx) })
}

// watch claims the time that the quarantine has lasted, and ends it if that is
// enough.
func (p *peer) watch(ctx context.Context) {
	p.mu.Lock()
	p.watcher = nil
	q := p.quarantine
	if q == nil || p.shut {
		p.mu.Unlock()
		return
	}
	p.armWatcher()
	p.backend.watching.Add(1)
	defer p.backend.watching.Done()
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	reply, err := p.claim(ctx, q)
	changed := err != nil || !reply.Known // it may have died: then it is no quarantine that it is waited for
	if lasted, over := q.over(p); !changed && over {
		changed = p.endQuarantine(ctx, q, lasted.Milliseconds(), p.mayLift)
	}
	if changed && !p.backend.isClosed() { // Close would wait
		p.recheck()
	}
}

// claim tells the node for how long its quarantine has lasted.
func (p *peer) claim(ctx context.Context, q *quarantine) (node.WatchReply, error) {
	p.mu.Lock()
	credit := q.Credit(p.backend.clock.Awake())
	p.mu.Unlock()
	reply, err := p.node.Watch(ctx, node.Watch{Keys: p.backend.keys, Guard: q.guard, Credit: credit.Milliseconds()})
	if err == nil {
		p.mu.Lock()
		q.Saw(p.backend.clock.Awake(), time.Duration(reply.Credit)*time.Millisecond)
		p.mu.Unlock()
	}
	return reply, err
}

// over reports whether the quarantine has lasted long enough, and how long that is.
func (q *quarantine) over(p *peer) (lasted time.Duration, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q.Require(p.backend.quarantineTime(q))
	return q.Need(), q.Left(p.backend.clock.Awake()) == 0 && !q.fenced
}

// endQuarantine lifts the quarantine of the node once it has a credit of lasted
// milliseconds. What the others have given out, asked for only now, is where its
// counters begin; may decides whether that will do. It reports whether the node
// has been told, or says that it is in no such quarantine any more.
func (p *peer) endQuarantine(
	ctx context.Context, q *quarantine, lasted int64, may func(sure bool, others []core.TokenReport) bool,
) bool {
	clock, err := p.claim(ctx, q) // for the time that the node has now
	if err != nil {
		return false
	}
	reports := p.backend.tokenReports(ctx, p)
	if q.blank && !p.mayAdopt(q, reports) {
		return false // an operator's word does not tell either whose it is
	}
	floor, sure, byClock := core.Floor(len(p.backend.peers), p.backend.cfg.Quorum, reports, clock.Time)
	if !may(sure || q.kept, reports) {
		return false
	}
	reply, err := p.node.Watch(ctx, node.Watch{
		Keys: p.backend.keys, Guard: q.guard, Lift: true, Need: lasted,
		Conf: p.backend.current().String(), Floor: floor, ByClock: byClock,
	})
	return err == nil && (reply.Lifted || !reply.Known)
}

// mayLift reports whether the node may count on from its clock, if that is what
// its floor rests on.
func (p *peer) mayLift(sure bool, others []core.TokenReport) bool {
	should := p.backend.votingBut(p) // looks at other peers, and so not under the lock of this one
	p.mu.Lock()
	defer p.unlock()
	if p.quarantine == nil {
		return true // somebody else has lifted it; the node will say so
	}
	lift := p.quarantine.Lift(sure, p.backend.cfg.CounterOnly, p.backend.cfg.Quorum, others, should)
	if lift == core.KeepUp && !p.quarantine.stuck {
		p.quarantine.stuck = true
		p.log(slog.LevelError, "redlock: node stays in quarantine: too few nodes can tell the tokens given out, and CounterOnly is set",
			"node", p.node.Name())
	}
	return lift == core.LiftNow
}

// mayAdopt reports whether a blank node may be given our configuration, as far as that
// depends on those that other nodes show. It says so if not.
func (p *peer) mayAdopt(q *quarantine, others []core.TokenReport) bool {
	err := p.backend.contested(others)
	p.mu.Lock()
	defer p.unlock()
	if err != nil && q.contested == nil {
		p.log(slog.LevelWarn, "redlock: node stays in quarantine", "node", p.node.Name(), "reason", err)
	}
	q.contested = err
	return err == nil
}

// votingBut is how many other nodes vote, as far as is known.
func (b *Backend) votingBut(p *peer) int {
	count := 0
	for _, other := range b.peers {
		if other == p {
			continue
		}
		if other.votes() {
			count++
		}
	}
	return count
}

// votes reports whether, as far as is known, the node would vote.
func (p *peer) votes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready && p.quarantine == nil && p.stalled == 0
}

// tokenReports asks all nodes but p for the largest number they have given out.
func (b *Backend) tokenReports(ctx context.Context, p *peer) []core.TokenReport {
	// One that is silent must leave time for what follows.
	ctx, cancel := context.WithTimeout(ctx, reportLimit)
	defer cancel()
	reports := make([]core.TokenReport, len(b.peers))
	var wg sync.WaitGroup
	for i, other := range b.peers {
		if other != p {
			wg.Go(func() { reports[i] = other.tokenReport(ctx) })
		}
	}
	wg.Wait()
	return reports
}

// tokenReport asks the node for the largest number it has given out, as the
// guard that it shows now allows.
func (p *peer) tokenReport(ctx context.Context) core.TokenReport {
	hello, err := p.node.Hello(ctx, node.Hello{Keys: p.backend.keys, Conf: p.backend.conf, Intent: node.Look})
	if err == nil {
		err = p.judge(hello)
	}
	switch {
	case errors.Is(err, backend.ErrMismatch), err == nil && hello.Was != "":
		return core.TokenReport{Foreign: true}
	case err != nil:
		return core.TokenReport{}
	}
	reply, err := p.node.Tokens(ctx, node.Tokens{Keys: p.backend.keys, Guard: hello.Guard})
	if err != nil {
		return core.TokenReport{}
	}
	return core.TokenReport{Ours: true, Voting: reply.Voting, Highest: reply.Highest, ByClock: reply.ByClock}
}

// claimLast claims the time that has passed in all quarantines: a client that is
// closed early has watched them, too.
func (b *Backend) claimLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxNodeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range b.peers {
		p.mu.Lock()
		watching := p.quarantine != nil
		p.mu.Unlock()
		if watching {
			wg.Go(func() { p.watch(ctx) })
		}
	}
	awaitGroup(ctx, &wg)
}
