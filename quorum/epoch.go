package quorum

import (
	"errors"
	"fmt"
	"strings"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

// mismatchError is why a node with another configuration does not vote.
type mismatchError struct {
	conf node.Conf
	diff string
}

func (e *mismatchError) Error() string { return backend.ErrMismatch.Error() + ": " + e.diff }

func (e *mismatchError) Unwrap() error { return backend.ErrMismatch }

// outdatedError is why a node does not vote that a change of configuration has
// passed by: nobody's quorum can be made with it any more, so unlike a mismatch it
// is in nobody's way.
type outdatedError struct{ epoch, newest uint64 }

func (e *outdatedError) Error() string {
	return fmt.Sprintf("outdated: it has the configuration of epoch %d, others have that of epoch %d", e.epoch, e.newest)
}

// learn takes in the configuration of a node that we accept. That of a fenced node
// is not yet in force.
func (b *Backend) learn(r node.HelloReply) {
	if r.Standing == node.StandingMismatch || r.Was != "" {
		return
	}
	shown, _ := node.ParseGuard(r.Guard)
	conf, err := node.ParseConf(shown.Conf)
	if err != nil {
		return // it is blank, or has none
	}
	for need := b.need.Load(); r.Need > need && !b.need.CompareAndSwap(need, r.Need); need = b.need.Load() {
	}
	for {
		seen := b.seen.Load()
		if seen != nil && (conf.Epoch < seen.Epoch || conf.Epoch == seen.Epoch && conf.Protocol >= seen.Protocol) {
			return
		}
		if b.seen.CompareAndSwap(seen, &conf) {
			return
		}
	}
}

// current is our configuration as it is in force on the nodes: theirs are the
// epoch, and the protocol, so that clients who speak the older one go on.
func (b *Backend) current() node.Conf {
	if seen := b.seen.Load(); seen != nil {
		return *seen
	}
	return b.conf
}

// mismatch returns why a node with this guard is not ours.
func (b *Backend) mismatch(guard string) error {
	shown, _ := node.ParseGuard(guard)
	conf, err := node.ParseConf(shown.Conf)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrMismatch, err)
	}
	mine := b.current()
	if b.seen.Load() == nil {
		mine.Epoch = conf.Epoch // any would do
	}
	m := &mismatchError{conf, strings.Join(mine.Diff(conf), ", ")}
	b.passedBy(m)
	return b.review(m)
}

// passedBy remembers the configuration of m if it is newer than ours, and than others
// that were.
func (b *Backend) passedBy(m *mismatchError) {
	for {
		passed := b.passed.Load()
		if m.conf.Epoch <= b.current().Epoch || passed != nil && m.conf.Epoch <= passed.conf.Epoch {
			return
		}
		if b.passed.CompareAndSwap(passed, m) {
			return
		}
	}
}

// errForeign is why a blank node stays out beside nodes that are not ours.
var errForeign = fmt.Errorf("%w: lost its data, and another node has another configuration, or is being given one",
	backend.ErrQuarantined)

// contested returns why a blank node must not be given our configuration, nil if it
// may, now that the others have been asked.
//
// A client that is behind, or configured wrongly, would take the node away from those
// who are right, and with a quorum of such nodes begin a new life of its configuration.
// Therefore a newer one counts once it has been seen, whoever has forgotten it since or
// cannot be reached. Where a quorum votes under ours, it is in force, and one node more
// changes nothing.
func (b *Backend) contested(others []core.TokenReport) error {
	passed := b.passed.Load()
	switch {
	case core.Voting(others) >= b.cfg.Quorum:
		return nil
	case core.Foreign(others):
		return errForeign
	case passed != nil && passed.conf.Epoch > b.current().Epoch:
		return fmt.Errorf("lost its data, and others had another configuration: %w", passed)
	}
	return nil
}

// review returns err as it is to be taken by now: the configuration of a node may
// turn out to be outdated when another has been greeted.
func (b *Backend) review(err error) error {
	var m *mismatchError
	if seen := b.seen.Load(); seen != nil && errors.As(err, &m) && m.conf.Epoch < seen.Epoch {
		return &outdatedError{m.conf.Epoch, seen.Epoch}
	}
	return err
}

func isOutdated(err error) bool {
	var o *outdatedError
	return errors.As(err, &o)
}
