package quorum

import (
	"errors"
	"fmt"
	"strings"

	"example.com/redlock/backend"
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
	return b.review(&mismatchError{conf, strings.Join(mine.Diff(conf), ", ")})
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
