package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// clockSpan is how long the nodes' clocks are watched.
const clockSpan = time.Second

// facts are all that the checks know. They are gathered in one place, and nothing
// is asked after that.
type facts struct {
	cfg     *Config
	backend *Backend // for what it makes of a hello; the checks ask nothing of it
	nodes   []*nodeFacts
	// endless are the names with a key that never expires, as far as they could be
	// listed.
	endless   []string
	listError error
}

// nodeFacts is what is known of one node.
type nodeFacts struct {
	name string
	// first and last are hellos, clockSpan apart.
	first, last look
	exam        node.ExamReply
	examErr     error
	// quarantined is why the node does not vote, if it is in quarantine, and left for
	// how long. blank tells that it has no configuration, fenced that no time ends it.
	quarantined   error
	left          time.Duration
	blank, fenced bool
}

// look is a hello that changes nothing, and when it was on its way.
type look struct {
	reply          node.HelloReply
	err            error
	sent, received core.Instant
	wall           time.Time // at sent
}

func (l *look) took() time.Duration { return l.received.Sub(l.sent) }

// Doctor implements backend.Backend.
func (b *Backend) Doctor(ctx context.Context) ([]backend.Finding, error) {
	ctx, ended := b.asking(ctx)
	defer ended()
	f := b.gather(ctx)
	if reasons := ctxReasons(ctx); len(reasons) > 0 {
		return nil, b.surveyError("doctor", "", nil, reasons...)
	}
	var findings []backend.Finding
	votes := make([]backend.Vote, len(f.nodes))
	for i, n := range f.nodes {
		found := f.examineNode(n)
		votes[i] = examVote(n, found)
		findings = append(findings, found...)
	}
	return append(findings, f.examineAll(votes)...), f.votesError(votes)
}

// gather asks the nodes all that the checks need to know.
func (b *Backend) gather(ctx context.Context) *facts {
	f := &facts{cfg: &b.cfg, backend: b, nodes: make([]*nodeFacts, len(b.peers))}
	second := time.After(clockSpan)
	var wg sync.WaitGroup
	for i, p := range b.peers {
		n := &nodeFacts{name: p.node.Name()}
		f.nodes[i] = n
		wg.Go(func() { n.first = p.look(ctx) })
		wg.Go(func() {
			n.exam, n.examErr = within(ctx, func(ctx context.Context) (node.ExamReply, error) {
				return p.node.Examine(ctx, node.Exam{Keys: b.keys})
			})
		})
	}
	wg.Go(func() { f.endless, f.listError = b.listEndless(ctx) })
	wg.Wait()
	select {
	case <-second:
	case <-ctx.Done():
	}
	for i, p := range b.peers {
		wg.Go(func() { f.nodes[i].last = p.look(ctx) })
	}
	wg.Wait()
	for _, n := range f.nodes {
		if n.last.err == nil && b.unfit(n.last.reply) == nil {
			b.learn(n.last.reply) // which configuration is in force
		}
	}
	for i, p := range b.peers {
		f.nodes[i].quarantine(p)
	}
	return f
}

// look greets the node without changing anything.
func (p *peer) look(ctx context.Context) look {
	l := look{wall: p.backend.wall(), sent: p.backend.clock.Now()}
	l.reply, l.err = within(ctx, func(ctx context.Context) (node.HelloReply, error) {
		return p.node.Hello(ctx, node.Hello{Keys: p.backend.keys, Conf: p.backend.conf, Intent: node.Look, Nonce: newNonce()})
	})
	l.received = p.backend.clock.Now()
	return l
}

// quarantine works out how long the node will not vote.
func (n *nodeFacts) quarantine(p *peer) {
	if n.last.err == nil && n.last.reply.Standing == node.StandingQuarantined {
		q := p.newQuarantine(n.last.reply)
		n.quarantined, n.left = p.backend.whyOut(q, true), q.Left(p.backend.clock.Awake())
		n.blank, n.fenced = q.blank, q.fenced
	}
}

// listEndless returns the names with a key that never expires.
func (b *Backend) listEndless(ctx context.Context) ([]string, error) {
	list, err := b.List(ctx, "")
	var names []string
	for _, s := range list {
		if s.NoTTL {
			names = append(names, s.Name)
		}
	}
	return names, err
}

// examineNode puts a node to every check that has an outcome.
func (f *facts) examineNode(n *nodeFacts) []backend.Finding {
	var found []backend.Finding
	for _, c := range nodeChecks {
		if v := c.of(f, n); v.Severity != "" {
			v.Node, v.Check = n.name, c.name
			found = append(found, v)
		}
	}
	return found
}

// examineAll makes the checks that are about all nodes together.
func (f *facts) examineAll(votes []backend.Vote) []backend.Finding {
	var found []backend.Finding
	for _, c := range commonChecks {
		if v := c.of(f, votes); v.Severity != "" {
			v.Check = c.name
			found = append(found, v)
		}
	}
	return found
}

// examVote says whether a node votes: nothing that was found speaks against it.
func examVote(n *nodeFacts, found []backend.Finding) backend.Vote {
	v := backend.Vote{Node: n.name, Outcome: backend.OutcomeGranted, Took: n.took()}
	for _, fd := range found {
		if fd.Severity != backend.SeverityFailure {
			continue
		}
		v.Outcome, v.Err = backend.OutcomeFailed, fd.Err
		if errors.Is(fd.Err, backend.ErrQuarantined) {
			v.Outcome, v.Remaining = backend.OutcomeQuarantined, n.left
		}
		break
	}
	return v
}

// votesError is an error if too few nodes vote.
func (f *facts) votesError(votes []backend.Vote) error {
	if countOutcome(votes, backend.OutcomeGranted) >= f.cfg.Quorum {
		return nil
	}
	reasons := []error{backend.ErrNoQuorum}
	for _, reason := range []error{
		backend.ErrUnfit, backend.ErrNotPermitted, backend.ErrMismatch, backend.ErrForeignKey, backend.ErrQuarantined,
	} {
		if slices.ContainsFunc(votes, func(v backend.Vote) bool { return errors.Is(v.Err, reason) }) {
			reasons = append(reasons, reason)
		}
	}
	return f.backend.surveyError("doctor", "", votes, reasons...)
}
