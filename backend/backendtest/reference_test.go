package backendtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/fence"
	"example.com/redlock/internal/node"
)

// mistake is something a backend may get wrong. The reference makes none.
type mistake string

const (
	heldIgnored      mistake = "a held name is given to a second holder"
	releaseUnchecked mistake = "release does not ask who holds the name"
	tokenReused      mistake = "a token is given out twice"
	lossUnreported   mistake = "nobody is told of a loss"
	lossReportedLate mistake = "the holder is told of a loss after the name is free"
	extendRevives    mistake = "an extension brings a lost lease back"
	handleTwice      mistake = "a handle works twice"
	waitDeaf         mistake = "a waiter does not hear its context end"
	ctxOwnsLease     mistake = "the lease ends with the context of Acquire"
	nilNil           mistake = "neither a lease nor an error"
	namesFolded      mistake = "names that differ are taken for the same"
	breakIgnored     mistake = "a broken lease is extended"
	patternIgnored   mistake = "a list has names that do not match"
	falseAlarm       mistake = "a service that is well is found to be ill"
	stopForbids      mistake = "a lease whose renewal was stopped is not extended"
	lineHidden       mistake = "who waits is not told"
	// hesitant is none: a lease that no quorum extended in time is still held.
	hesitant mistake = "the first extension finds no quorum"
)

// record is what the service stores for one name.
type record struct {
	id, owner string
	token     fence.Token
	expires   time.Time
	broken    bool
}

// service is a coordination service with one node, one mutex and no faults.
type service struct {
	mistake mistake
	mu      sync.Mutex
	records map[string]*record
	line    []backend.Request
	last    uint64
	ids     int
}

func newService(m mistake) *service {
	return &service{mistake: m, records: make(map[string]*record)}
}

// at returns the record of name if its lease has not ended, and nil otherwise.
// The caller holds mu.
func (s *service) at(name string) *record {
	if r := s.records[s.key(name)]; r != nil && time.Now().Before(r.expires) {
		return r
	}
	return nil
}

func (s *service) key(name string) string {
	if s.mistake == namesFolded {
		return fmt.Sprintf("%.40s", name)
	}
	return name
}

// store gives name to a fresh id. The caller holds mu.
func (s *service) store(name string, r backend.Request) *record {
	s.ids++
	if s.mistake != tokenReused || s.last == 0 {
		s.last++
	}
	rec := &record{
		id: strconv.Itoa(s.ids), owner: r.Owner, token: fence.Token(s.last),
		expires: time.Now().Add(r.TTL),
	}
	s.records[s.key(name)] = rec
	return rec
}

// client is the reference Backend.
type client struct {
	service *service
	closed  context.Context
	close   context.CancelFunc
}

func newClient(s *service) *client {
	c := &client{service: s}
	c.closed, c.close = context.WithCancel(context.Background())
	return c
}

func (c *client) Limits() backend.Limits {
	return backend.Limits{MinTTL: 20 * time.Millisecond, MaxTTL: 30 * time.Second}
}

func (c *client) CheckName(name string) error {
	if len(name) < 1 || len(name) > 512 {
		return fmt.Errorf("%w: name of %d bytes", backend.ErrBadOption, len(name))
	}
	return nil
}

func (c *client) check(r backend.Request) error {
	l := c.Limits()
	switch {
	case c.closed.Err() != nil:
		return backend.ErrClosed
	case r.TTL < l.MinTTL || r.TTL > l.MaxTTL || r.TTL%time.Millisecond != 0:
		return fmt.Errorf("%w: TTL %v", backend.ErrBadOption, r.TTL)
	case r.Mode != backend.Exclusive:
		return fmt.Errorf("shared mode: %w", errUnsupported)
	}
	return c.CheckName(r.Name)
}

func (c *client) Acquire(ctx context.Context, r backend.Request) (backend.Lease, error) {
	if err := c.check(r); err != nil {
		return nil, err
	}
	var bound <-chan time.Time
	if r.Wait > 0 {
		bound = time.After(r.Wait)
	}
	defer c.service.wait(r)()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for attempts := 1; ; attempts++ {
		if err := ctx.Err(); err != nil && c.service.mistake != waitDeaf {
			return nil, fmt.Errorf("acquire: %w", err)
		}
		if l := c.attempt(ctx, r); l != nil {
			return l, nil
		}
		if r.NoWait {
			if c.service.mistake == nilNil {
				return nil, nil
			}
			return nil, fmt.Errorf("acquire: %w", backend.ErrHeld)
		}
		if r.OnWait != nil {
			r.OnWait(backend.Wait{Attempts: attempts, Err: backend.ErrHeld})
		}
		select {
		case <-tick.C:
		case <-bound:
			return nil, fmt.Errorf("acquire: %w", backend.ErrHeld)
		}
	}
}

// wait notes that somebody asks for a name, and returns what ends that.
func (s *service) wait(r backend.Request) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(s.line, r)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.line = slices.DeleteFunc(s.line, func(o backend.Request) bool { return o.Name == r.Name && o.Owner == r.Owner })
	}
}

// attempt returns nil if the name is held.
func (c *client) attempt(ctx context.Context, r backend.Request) backend.Lease {
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at(r.Name) != nil && s.mistake != heldIgnored {
		return nil
	}
	l := c.lease(s.store(r.Name, r), r)
	if s.mistake == ctxOwnsLease {
		context.AfterFunc(ctx, l.StopRenewal)
	}
	return l
}

func (c *client) Resume(_ context.Context, handle string, r backend.Request) (backend.Lease, error) {
	h, err := backend.DecodeHandle(handle)
	if err != nil {
		return nil, err
	}
	r.Name = h.Name
	if err := c.check(r); err != nil {
		return nil, err
	}
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.at(h.Name)
	if rec == nil || (rec.id != h.ID && s.mistake != handleTwice) {
		return nil, fmt.Errorf("resume: %w", backend.ErrLost)
	}
	return c.lease(s.store(h.Name, r), r), nil
}

func (c *client) ReleaseHandle(_ context.Context, handle string) error {
	h, err := backend.DecodeHandle(handle)
	if err != nil {
		return err
	}
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec := s.at(h.Name); rec == nil || rec.id != h.ID {
		return fmt.Errorf("release: %w", backend.ErrLost)
	}
	delete(s.records, s.key(h.Name))
	return nil
}

func (c *client) Inspect(_ context.Context, name string) (backend.Status, error) {
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.at(name)
	if rec == nil {
		return backend.Status{Name: name}, nil
	}
	st := backend.Status{
		Name: name, Held: true, Broken: rec.broken, Owner: rec.owner, Token: rec.token,
		Remaining: time.Until(rec.expires),
	}
	for _, r := range s.line {
		if r.Name == name && s.mistake != lineHidden {
			st.Line = append(st.Line, backend.Waiter{Owner: r.Owner, Mode: r.Mode})
		}
	}
	st.Waiting = len(st.Line)
	return st, nil
}

func (c *client) List(ctx context.Context, pattern string) ([]backend.Status, error) {
	p, err := node.ParsePattern(cmp.Or(pattern, "*"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrBadOption, err)
	}
	c.service.mu.Lock()
	names := slices.Sorted(maps.Keys(c.service.records))
	c.service.mu.Unlock()
	var list []backend.Status
	for _, name := range names {
		st, _ := c.Inspect(ctx, name)
		if st.Held && (p.Match(name) || c.service.mistake == patternIgnored) {
			list = append(list, st)
		}
	}
	return list, nil
}

func (c *client) Break(_ context.Context, name string, now bool) error {
	s := c.service
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.at(name)
	if rec == nil || s.mistake == breakIgnored {
		return nil
	}
	rec.broken = true
	if now {
		delete(s.records, s.key(name))
	}
	return nil
}

func (c *client) Init(ctx context.Context, _ backend.InitOptions) []backend.NodeState {
	return c.Nodes(ctx)
}

func (c *client) Nodes(context.Context) []backend.NodeState {
	return []backend.NodeState{{Node: "reference", Standing: "ok"}}
}

func (c *client) Doctor(context.Context) ([]backend.Finding, error) {
	found := backend.Finding{Node: "reference", Check: "reachable", Severity: backend.SeverityOK, Text: "in this process"}
	if c.service.mistake == falseAlarm {
		found.Severity = backend.SeverityWarning
	}
	return []backend.Finding{found}, nil
}

func (c *client) Close(context.Context) error {
	c.close()
	return nil
}

// lease is the reference Lease. All of it is guarded by the service's mutex.
type lease struct {
	client   *client
	request  backend.Request
	record   *record
	deadline time.Time
	end      *time.Timer
	renewal  *time.Timer
	// missed: the first extension came to nothing, as hesitant wants it.
	missed bool
	// over is why the lease is no longer held, and released what Release says.
	over, released error
}

// lease makes rec a held lease. The caller holds mu.
func (c *client) lease(rec *record, r backend.Request) *lease {
	l := &lease{client: c, request: r, record: rec}
	l.deadline = l.validity()
	l.end = time.AfterFunc(time.Until(l.deadline), l.lose)
	if !r.NoRenew {
		l.renewal = time.AfterFunc(r.TTL/3, l.renew)
	}
	return l
}

// validity ends before the record does, to leave Lost time to be heard.
func (l *lease) validity() time.Time {
	margin := -l.request.TTL / 10
	if l.client.service.mistake == lossReportedLate {
		margin = -margin
	}
	return l.record.expires.Add(margin)
}

func (l *lease) Token() fence.Token { return l.record.token }

func (l *lease) TokenByClock() bool { return false }

func (l *lease) Deadline() time.Time {
	l.client.service.mu.Lock()
	defer l.client.service.mu.Unlock()
	return l.deadline
}

func (l *lease) Extend(context.Context) error {
	s := l.client.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mistake == hesitant && !l.missed {
		l.missed = true
		return fmt.Errorf("extend: %w", backend.ErrNoQuorum)
	}
	if l.over == nil || (l.over == backend.ErrLost && s.mistake == extendRevives) {
		if rec := s.at(l.request.Name); (rec == nil || rec != l.record || rec.broken) && s.mistake != extendRevives {
			return fmt.Errorf("extend: %w", backend.ErrLost)
		}
		l.record.expires = time.Now().Add(l.request.TTL)
		s.records[s.key(l.request.Name)] = l.record
		l.deadline = l.validity()
		l.end.Reset(time.Until(l.deadline))
		return nil
	}
	return fmt.Errorf("extend: %w", l.over)
}

func (l *lease) renew() {
	if l.client.closed.Err() != nil || l.Extend(context.Background()) != nil {
		return
	}
	l.client.service.mu.Lock()
	defer l.client.service.mu.Unlock()
	if l.renewal != nil {
		l.renewal.Reset(l.request.TTL / 3)
	}
}

// lose runs when the deadline has come.
func (l *lease) lose() {
	s := l.client.service
	s.mu.Lock()
	lost := l.over == nil && !time.Now().Before(l.deadline)
	if lost {
		l.over = backend.ErrLost
	}
	s.mu.Unlock()
	if lost && l.request.Lost != nil && s.mistake != lossUnreported {
		l.request.Lost(fmt.Errorf("the deadline has passed: %w", backend.ErrLost))
	}
}

func (l *lease) StopRenewal() {
	l.client.service.mu.Lock()
	defer l.client.service.mu.Unlock()
	l.stopRenewal()
	if l.client.service.mistake == stopForbids {
		l.record.broken = true
	}
}

func (l *lease) stopRenewal() {
	if l.renewal != nil {
		l.renewal.Stop()
		l.renewal = nil
	}
}

func (l *lease) Release(context.Context) error {
	s := l.client.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.over == backend.ErrReleased {
		return l.released
	}
	if l.over == backend.ErrLost {
		l.released = backend.ErrLost
	}
	l.over = backend.ErrReleased
	l.stopRenewal()
	if rec := s.at(l.request.Name); rec == l.record || s.mistake == releaseUnchecked {
		delete(s.records, s.key(l.request.Name))
	}
	return l.released
}

func (l *lease) Handle() (string, error) {
	s := l.client.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.over != nil {
		return "", l.over
	}
	l.over = backend.ErrReleased
	l.stopRenewal()
	return backend.Handle{Name: l.request.Name, ID: l.record.id, Token: uint64(l.record.token)}.Encode()
}
