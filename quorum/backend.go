// Package quorum is the backend of redlock over N independent Redis masters: a
// lease is held while a quorum of them agrees.
//
// The package is the concurrent shell around internal/core, which makes all
// decisions. A peer (peer.go) carries operations to one node in batches; an
// attempt (attempt.go) is one random id on all nodes, from its first send over
// the life of its lease (lease.go) to its last release (release.go); acquire.go
// is the loop of a caller that waits; line.go is an attempt that stands in line, and
// listen.go hears what is handed to it.
//
// Which nodes vote: greeting.go says hello to a node, fitness.go and clock.go say
// why one cannot be trusted, quarantine.go, durable.go and rollback.go what follows
// when it may have forgotten something, epoch.go whose configuration it has. For
// operators: nodes.go (Init), reconfigure.go, list.go, admin.go (Inspect, Break),
// doctor.go gathers facts and checks.go judges them.
package quorum

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/monotime"
	"example.com/redlock/internal/node"
)

// maxAttempts bounds the attempts under way at once; more wait for a place.
const maxAttempts = 4096

// maxProbes bounds the callers that go on trying while no quorum answers.
const maxProbes = 64

// Backend is a quorum of nodes. Make it with New.
type Backend struct {
	cfg   Config
	keys  node.Keyspace
	conf  node.Conf
	peers []*peer
	clock *monotime.Clock
	id    string           // that nodes push to
	wall  func() time.Time // only for the numbers that attempts propose
	slots chan struct{}
	// probes has the callers that go on trying during an outage.
	probes chan struct{}

	// watching has the watches over quarantines under way, and the subscriptions.
	watching sync.WaitGroup
	// ctx ends when the backend is closed, after everything else.
	ctx    context.Context
	cancel context.CancelFunc
	// closing ends, with backend.ErrClosed, when Close begins.
	closing context.Context
	close   context.CancelCauseFunc

	// met: the first caller has waited for every node to be greeted.
	met atomic.Bool
	// need is the longest quarantine, in milliseconds, that a change of configuration
	// has asked a node of ours for.
	need atomic.Int64
	// leaps counts how often the clock of a node was seen to have leapt ahead.
	leaps atomic.Uint64
	// seen is our configuration as nodes have shown it: that of the highest epoch.
	seen atomic.Pointer[node.Conf]
	// passed is the configuration of the highest epoch that is not ours, and was newer
	// than ours when a node showed it.
	passed atomic.Pointer[mismatchError]

	mu       sync.Mutex
	proposer core.Proposer
	runIDs   map[string]int        // process → index of the peer that it is
	held     map[*attempt]struct{} // leases to look after
	lines    map[string]*attempt   // by waiter: those that nodes may push to
	waiting  map[string]int        // by name: how many stand in line
	moves    map[int]move          // by peer: how its clock moved last
	readings []lastReading         // of the nodes' clocks, at greetings
	ownMoved core.Instant          // when our own clock was last put right
	survey   *clockSurvey          // under way
	watch    *time.Timer           // looks for suspensions while leases are held
	busy     int                   // operations that have not come to an end
	idle     chan struct{}         // closed when busy falls to 0, if Close waits
}

var _ backend.Backend = (*Backend)(nil)

// New returns a backend over nodes, which it then owns. All options are checked
// here; nothing is sent before the first use.
func New(nodes []Node, c *Config) (*Backend, error) {
	cfg, err := c.withDefaults(len(nodes))
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for _, n := range nodes {
		if seen[n.Name()] {
			return nil, badOption("node %s is given twice", n.Name())
		}
		seen[n.Name()] = true
	}
	b := &Backend{
		cfg:    cfg,
		keys:   node.Keyspace{Namespace: cfg.Namespace, Plain: cfg.PlainKeys},
		conf:   cfg.conf(nodes),
		clock:  monotime.New(),
		wall:   time.Now,
		slots:  make(chan struct{}, maxAttempts),
		probes: make(chan struct{}, maxProbes),
		runIDs: make(map[string]int),
		held:   make(map[*attempt]struct{}),
		lines:  make(map[string]*attempt), waiting: make(map[string]int),
		moves: make(map[int]move),
		id:    newID(),

		readings: make([]lastReading, len(nodes)),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.closing, b.close = context.WithCancelCause(context.Background())
	for i, n := range nodes {
		p := &peer{index: i, node: n, backend: b, steady: core.NewClockWatch(cfg.MaxTTL, cfg.DriftRate), counters: counters{}}
		p.met = make(chan struct{})
		p.listener.waiters = make(map[*attempt]struct{})
		b.peers = append(b.peers, p)
	}
	if len(nodes)%2 == 0 {
		cfg.Logger.Info("redlock: an even number of nodes tolerates no more failures than one node less",
			"nodes", len(nodes), "quorum", cfg.Quorum)
	}
	return b, nil
}

// CheckName reports whether name can be locked: 1 to 512 bytes that do not
// begin with the namespace and a colon, which is where the keys of the service
// itself live.
func (b *Backend) CheckName(name string) error {
	switch {
	case name == "":
		return badOption("empty name")
	case len(name) > maxNameBytes:
		return badOption("name of %d bytes is longer than %d", len(name), maxNameBytes)
	case strings.HasPrefix(name, b.cfg.Namespace+":"):
		return badOption("name %q begins with the namespace %q", name, b.cfg.Namespace)
	}
	return nil
}

// Limits says which TTLs can be asked for.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{MinTTL: MinTTL, MaxTTL: b.cfg.MaxTTL}
}

// Close ends renewals and waits, up to ctx, until every operation under way has
// been answered or has fallen silent. Then it closes the connections. What watches
// over quarantines have to tell is waited for up to ctx, too.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.isClosed() {
		b.mu.Unlock()
		return nil
	}
	b.close(backend.ErrClosed)
	if b.watch != nil {
		b.watch.Stop()
	}
	b.mu.Unlock()
	for _, a := range slices.Concat(b.leases(), b.places()) {
		a.abandon()
	}
	b.mu.Lock()
	idle := make(chan struct{})
	b.idle = idle
	if b.busy == 0 {
		close(idle)
		b.idle = nil
	}
	b.mu.Unlock()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("redlock: close: operations still under way: %w", ctx.Err())
	}
	b.claimLast(ctx)
	b.cancel()
	for _, p := range b.peers {
		err = errors.Join(err, p.close())
	}
	awaitGroup(ctx, &b.watching) // their ctx has ended
	return err
}

// awaitGroup waits for those in wg, but no longer than ctx: a logger or an observer
// that does not return keeps the one who tells it something, and nobody else.
func awaitGroup(ctx context.Context, wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (b *Backend) isClosed() bool { return b.closing.Err() != nil }

// begun and ended count operations, for Close to wait on.
func (b *Backend) begun() {
	b.mu.Lock()
	b.busy++
	b.mu.Unlock()
}

func (b *Backend) ended() {
	b.mu.Lock()
	b.busy--
	if b.busy == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
	b.mu.Unlock()
}

// identify notes that the peer at index is the process runID. If another peer
// is that process already, it returns that one: a server counts once.
func (b *Backend) identify(index int, runID string) *peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disown(index)
	if other, known := b.runIDs[runID]; known {
		return b.peers[other]
	}
	b.runIDs[runID] = index
	return nil
}

// unidentify notes that it is not known which process the peer at index is.
func (b *Backend) unidentify(index int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disown(index)
}

func (b *Backend) disown(index int) {
	for id, i := range b.runIDs {
		if i == index {
			delete(b.runIDs, id)
		}
	}
}

// propose returns the number for a new attempt to propose as its token.
func (b *Backend) propose() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proposer.Next(b.wall().UnixMicro())
}

// saw notes a number that a node has given out.
func (b *Backend) saw(n uint64) {
	b.mu.Lock()
	b.proposer.Saw(n)
	b.mu.Unlock()
}

// hold looks after the lease of a until drop.
func (b *Backend) hold(a *attempt) {
	b.mu.Lock()
	b.held[a] = struct{}{}
	if b.watch == nil && !b.isClosed() {
		b.watch = time.AfterFunc(watchEvery, b.watchSleep)
	}
	b.mu.Unlock()
}

func (b *Backend) drop(a *attempt) {
	b.mu.Lock()
	delete(b.held, a)
	b.mu.Unlock()
}

// watchEvery is how often a process that holds leases looks whether the machine
// was suspended.
const watchEvery = time.Second

// watchSleep looks for a suspension, during which timers stood still while the
// nodes' clocks went on, and has every lease look at its end again.
func (b *Backend) watchSleep() {
	b.noticeSleep()
	b.mu.Lock()
	if len(b.held) > 0 && !b.isClosed() {
		b.watch.Reset(watchEvery)
	} else {
		b.watch = nil
	}
	b.mu.Unlock()
}

// noticeSleep moves the clock on by the time that the machine was suspended
// since the last look, and has every lease look at its end again: whoever
// notices first does so for all. No lock may be held.
func (b *Backend) noticeSleep() {
	slept := b.clock.Check()
	if slept == 0 {
		return
	}
	b.tellSlept(slept)
}

// tellSlept has every lease look at its end, now that the clock has moved on.
func (b *Backend) tellSlept(slept time.Duration) {
	for _, a := range b.leases() {
		a.checkEnd()
	}
	b.cfg.Logger.Warn("redlock: the machine was suspended", "for", slept)
	b.emit(backend.Event{Kind: backend.EventSuspended, Took: slept})
}

// leases returns the leases that are held.
func (b *Backend) leases() []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := make([]*attempt, 0, len(b.held))
	for a := range b.held {
		held = append(held, a)
	}
	return held
}

// places are the attempts to which nodes may push.
func (b *Backend) places() []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.lines))
}

func (b *Backend) emit(e backend.Event) {
	if b.cfg.Observer != nil {
		b.cfg.Observer(e)
	}
}

// newID returns a fresh attempt id: 128 random bits, as 32 hexadecimal digits.
func newID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand since Go 1.24)
	return hex.EncodeToString(raw[:])
}

// random returns a random number for jitter.
func random() uint64 { return mathrand.Uint64() }
