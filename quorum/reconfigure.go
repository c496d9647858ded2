package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// Reconfigure gives the nodes the configuration of b in place of the one that
// they, or the nodes of old, have. It may be run while leases of the old
// configuration are held, and again if it was interrupted. The states are those of
// the nodes, then of old ones that are left behind.
//
// It is safe for these reasons. Clients of the old configuration need a quorum of
// nodes that show it, and so many are fenced that the others are none. A fenced
// node extends no lease of the old configuration either, so the last of them is
// over a MaxTTL later; only after all fences are up does the quarantine of the new
// nodes begin, and it lasts for the larger MaxTTL. Until then no node of the new
// configuration votes: those that could are fenced first. Every old token was
// witnessed by a quorum, one node of which is among those that were fenced
// afterwards with their counters whole: the largest number of these is the floor of
// all new nodes.
func (b *Backend) Reconfigure(ctx context.Context, old []Node) ([]backend.NodeState, error) {
	c := b.newChange(old)
	err := c.look(ctx)
	if err == nil {
		err = c.decide()
	}
	if err == nil {
		err = c.carryOut(ctx)
	}
	states := b.Nodes(ctx)
	for _, s := range c.sites[len(b.peers):] {
		states = append(states, s.state())
	}
	if err != nil {
		err = fmt.Errorf("redlock: reconfigure: %w", err)
	}
	return states, err
}

// change is a change of configuration under way.
type change struct {
	backend *Backend
	sites   []*site // the nodes of the new configuration, then others
	// target is the new configuration, old the one before: the zero Conf if no node
	// has it any more.
	target, old node.Conf
	// floor is the largest token of the old configuration.
	floor   uint64
	byClock bool
}

// site is one node in a change of configuration.
type site struct {
	node  Node
	peer  *peer // nil for a node that is to be left behind
	hello node.HelloReply
	err   error
	guard string // what it shows
	// shows is the configuration in its guard, was the one that it votes under, or
	// did before it was fenced. Nil for none.
	shows, was *node.Conf
	fenced     bool
	// whole: its counters have forgotten nothing.
	whole, byClock bool
	reply          node.ConfigureReply
	report         core.TokenReport
}

func (b *Backend) newChange(old []Node) *change {
	c := &change{backend: b}
	known := make(map[string]bool)
	for _, p := range b.peers {
		known[p.node.Name()] = true
		c.sites = append(c.sites, &site{node: p.node, peer: p})
	}
	for _, n := range old {
		if !known[n.Name()] {
			known[n.Name()] = true
			c.sites = append(c.sites, &site{node: n})
		}
	}
	return c
}

// each does something at many sites at once.
func each(ctx context.Context, sites []*site, do func(context.Context, *site)) {
	ctx, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range sites {
		wg.Go(func() { do(ctx, s) })
	}
	wg.Wait()
}

// faults joins the errors at sites.
func faults(sites []*site) error {
	var errs []error
	for _, s := range sites {
		if s.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.node.Name(), s.err))
		}
	}
	return errors.Join(errs...)
}

func choose(sites []*site, want func(*site) bool) []*site {
	var chosen []*site
	for _, s := range sites {
		if want(s) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

func (s *site) isNew() bool { return s.peer != nil }

// look sees what every node is. All new ones have to be fit.
func (c *change) look(ctx context.Context) error {
	each(ctx, c.sites, func(ctx context.Context, s *site) { s.look(ctx, c.backend) })
	seen := make(map[string]bool)
	c.sites = choose(c.sites, func(s *site) bool { // an old one may have two addresses
		again := s.err == nil && seen[s.hello.RunID]
		seen[s.hello.RunID] = true
		return s.isNew() || !again
	})
	return faults(choose(c.sites, (*site).isNew))
}

func (s *site) look(ctx context.Context, b *Backend) {
	s.hello, s.err = s.node.Hello(ctx, node.Hello{Keys: b.keys, Conf: b.conf, Intent: node.Look})
	if s.err != nil {
		s.err = fmt.Errorf("%w: %w", backend.ErrNoQuorum, s.err)
		return
	}
	s.guard = s.hello.Guard
	if s.hello.Changed {
		s.guard = s.hello.Previous
	}
	if shown, ok := node.ParseGuard(s.guard); ok {
		s.shows = confOf(shown.Conf)
		s.whole = shown.Life == s.hello.Life && (shown.Nonce == "" || s.hello.Kept)
		s.byClock = s.hello.ByClock
	}
	s.was, s.fenced = s.shows, s.hello.Was != ""
	if s.fenced {
		s.was = confOf(s.hello.Was)
	}
	if s.peer == nil {
		return
	}
	err := s.peer.judge(s.hello)
	if s.shows == nil || !errors.Is(err, backend.ErrMismatch) && !isOutdated(err) {
		s.err = s.peer.asRefusal(err)
	}
}

func confOf(stored string) *node.Conf {
	conf, err := node.ParseConf(stored)
	if err != nil {
		return nil
	}
	return &conf
}

// state describes a node that is to be left behind.
func (s *site) state() backend.NodeState {
	state := backend.NodeState{
		Node: s.node.Name(), Standing: string(s.hello.Standing), RunID: s.hello.RunID, Version: s.hello.Version,
		HasRecords: s.shows != nil,
	}
	if s.fenced {
		state.Standing = standingFenced
	}
	describeError(&state, s.err)
	if errors.Is(s.err, backend.ErrNoQuorum) {
		state.Standing = standingUnreachable
	}
	return state
}

// inForce reports whether the node shows conf and is not fenced.
func (s *site) inForce(conf node.Conf) bool { return s.shows != nil && *s.shows == conf && !s.fenced }

// errNothing tells that there is nothing to change.
func errNothing(why string) error {
	return fmt.Errorf("%w: %s: to declare blank nodes, use init without --reconfigure", backend.ErrBadOption, why)
}

// decide finds out from what to what the configuration changes.
func (c *change) decide() error {
	c.target = c.backend.conf
	newest, begun := c.newest()
	switch {
	case begun == nil:
		c.target.Epoch = newest + 1
	case len(choose(c.sites, func(s *site) bool { return s.isNew() && !s.inForce(*begun) })) > 0:
		c.target = *begun
	case begun.Protocol == c.target.Protocol:
		return errNothing("all nodes have this configuration")
	default:
		c.target.Epoch, c.old = newest+1, *begun
		return nil
	}
	found, err := c.findOld()
	if err == nil && !found && len(choose(c.sites, func(s *site) bool { return s.fenced })) == 0 {
		err = errNothing("no node has another configuration")
	}
	return err
}

// newest is the highest epoch of all, and the configuration of it if that is the
// one we want: an earlier run has begun to change to it.
func (c *change) newest() (epoch uint64, begun *node.Conf) {
	for _, s := range c.sites {
		if s.shows != nil {
			epoch = max(epoch, s.shows.Epoch)
		}
	}
	for _, s := range c.sites {
		switch {
		case s.shows == nil || s.shows.Epoch < epoch:
		case !c.backend.conf.Accepts(s.shows.String()), begun != nil && *begun != *s.shows:
			return epoch, nil
		default:
			begun = s.shows
		}
	}
	return epoch, begun
}

// findOld finds the configuration that is to be replaced: another one than the
// target, or, if there is none, one of an earlier epoch or protocol.
func (c *change) findOld() (found bool, err error) {
	other := func(s *site) bool {
		return s.was != nil && *s.was != c.target && !c.backend.conf.Accepts(s.was.String())
	}
	sites := choose(c.sites, other)
	if len(sites) == 0 {
		sites = choose(c.sites, func(s *site) bool { return s.was != nil && *s.was != c.target })
	}
	for _, s := range sites {
		if !found || s.was.Epoch > c.old.Epoch {
			c.old, found = *s.was, true
		}
	}
	for _, s := range sites {
		if s.was.Epoch == c.old.Epoch && *s.was != c.old {
			return true, fmt.Errorf("%w: nodes have different configurations of epoch %d: %v and %v", backend.ErrMismatch, c.old.Epoch, c.old, *s.was)
		}
	}
	return found, nil
}

// carryOut makes the change.
func (c *change) carryOut(ctx context.Context) error {
	fresh := choose(c.sites, (*site).isNew)
	voting := choose(fresh, func(s *site) bool { return s.inForce(c.target) && s.hello.Standing == node.StandingOK })
	if len(voting) >= c.target.Q {
		// It was made before; some nodes were left out.
		if err := c.askFloor(ctx, voting); err != nil {
			return err
		}
		return c.configure(ctx, choose(fresh, func(s *site) bool { return !s.inForce(c.target) }))
	}
	// A node that is fenced does not get back what it has forgotten: if too few know
	// the tokens, that is to be said while waiting still helps.
	if err := c.checkMemory(); err != nil {
		return err
	}
	if err := c.fence(ctx); err != nil {
		return err
	}
	return c.configure(ctx, fresh)
}

// fence takes the nodes out of the old configuration, and first the new ones that
// were not in it out of whatever they are in: they could be a quorum already.
func (c *change) fence(ctx context.Context) error {
	outside := func(s *site) bool { return s.isNew() && (s.was == nil || *s.was != c.old) }
	inside := func(s *site) bool { return s.err == nil && s.was != nil && *s.was == c.old }
	for _, chosen := range [][]*site{choose(c.sites, outside), choose(c.sites, inside)} {
		each(ctx, chosen, func(ctx context.Context, s *site) {
			s.configure(ctx, c, node.Configure{Fence: true})
			if s.fenced = s.err == nil; s.fenced {
				s.was, s.whole, s.byClock = confOf(s.reply.Was), s.reply.Whole, s.reply.ByClock
			}
		})
		if err := faults(choose(chosen, (*site).isNew)); err != nil {
			return err
		}
	}
	for _, s := range c.sites {
		if s.fenced && s.err == nil {
			c.floor = max(c.floor, s.reply.Highest)
		}
	}
	return c.checkMemory()
}

// memories is what nodes of one configuration say of their counters.
type memories struct {
	nodes, whole int
	byClock      bool // of those that are whole
}

func (m *memories) add(s *site) {
	m.nodes++
	m.whole += count(s.whole)
	m.byClock = m.byClock || s.whole && s.byClock
}

// checkMemory reports whether enough of the nodes that are to be fenced, or are,
// know the tokens given out.
func (c *change) checkMemory() error {
	var before, after memories
	for _, s := range c.sites {
		switch {
		case s.err != nil || s.was == nil:
		case *s.was == c.target && s.isNew():
			after.add(s)
		case *s.was == c.old:
			before.add(s)
		}
	}
	// Whoever has the new configuration got it, with the floor, from a run that had
	// fenced enough. If so many have it, they may have given out tokens since.
	if need := c.target.N - c.target.Q + 1; after.nodes >= c.target.Q && after.whole < need {
		return fmt.Errorf("%w: %d of %d nodes with the new configuration know the tokens given out, need %d: run it again when they vote",
			backend.ErrNoQuorum, after.whole, after.nodes, need)
	}
	if after.whole > 0 {
		c.byClock = after.byClock
		return nil
	}
	if need := c.old.N - c.old.Q + 1; before.whole < need || c.old.N == 0 {
		return fmt.Errorf("%w: %d of %d nodes with the old configuration know the tokens given out, need %d: "+
			"run it again when more of them vote, with --old if they are not among the new ones",
			backend.ErrNoQuorum, before.whole, c.old.N, need)
	}
	c.byClock = before.byClock
	return nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// askFloor takes the floor from nodes that vote under the new configuration.
func (c *change) askFloor(ctx context.Context, voting []*site) error {
	each(ctx, voting, func(ctx context.Context, s *site) { s.report = s.peer.tokenReport(ctx) })
	sure := 0
	for _, s := range voting {
		c.floor, c.byClock = max(c.floor, s.report.Highest), c.byClock || s.report.ByClock
		sure += count(s.report.Voting)
	}
	if need := c.target.N - c.target.Q + 1; sure < need {
		return fmt.Errorf("%w: %d nodes with the new configuration know the tokens given out, need %d: run it again", backend.ErrNoQuorum, sure, need)
	}
	return nil
}

// configure gives sites the new configuration and the floor.
func (c *change) configure(ctx context.Context, sites []*site) error {
	longest := c.target.MaxTTL
	for _, s := range c.sites {
		for _, conf := range []*node.Conf{s.shows, s.was} {
			if conf != nil {
				longest = max(longest, conf.MaxTTL)
			}
		}
	}
	need := core.QuarantineTime(time.Duration(longest)*time.Millisecond, c.backend.cfg.DriftRate, true)
	each(ctx, sites, func(ctx context.Context, s *site) {
		s.configure(ctx, c, node.Configure{Need: need.Milliseconds(), Floor: c.floor, ByClock: c.byClock})
	})
	return faults(sites)
}

// configure has the node do what how says.
func (s *site) configure(ctx context.Context, c *change, how node.Configure) {
	how.Keys, how.Conf, how.Shown, how.Nonce = c.backend.keys, c.target, s.guard, newNonce()
	s.reply, s.err = s.node.Configure(ctx, how)
	switch {
	case s.err != nil:
		s.err = fmt.Errorf("%w: not known whether it has the new configuration: run it again: %w", backend.ErrNoQuorum, s.err)
	case !s.reply.Done && s.reply.Shown != s.guard:
		s.err = fmt.Errorf("%w: somebody else has changed it: run it again", backend.ErrNoQuorum)
	case !s.reply.Done:
		s.err = fmt.Errorf("%w: it keeps %q", backend.ErrMismatch, s.reply.Shown)
	default:
		s.guard = node.Guard{Life: s.hello.Life, Nonce: how.Nonce, Conf: c.target.String()}.String()
	}
}
