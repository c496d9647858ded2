package quorum

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/core"
	"example.com/redlock/internal/node"
)

const (
	// fitnessEvery is how often a node that is used is asked whether it is still
	// fit to vote: what makes it unfit, such as CONFIG SET, cuts no connection.
	fitnessEvery = 10 * time.Second
	// minVersion is the first with PEXPIRE … GT.
	minVersion = 7
)

// lookAgain greets a node anew if the last time is long ago. The node goes on
// voting meanwhile. It runs with the operations of callers: nobody asks a node
// that is not used.
func (p *peer) lookAgain(now core.Instant) {
	if p.ready && !p.underWay && now.Sub(p.greeted) >= fitnessEvery {
		p.underWay = true
		go p.greet()
	}
}

// lookAgainUnasked is lookAgain for a caller that has nothing for the node to do.
func (p *peer) lookAgainUnasked() {
	p.mu.Lock()
	defer p.unlock()
	if !p.shut {
		p.lookAgain(p.backend.clock.Now())
	}
}

// unfit returns what the node's own words have against its vote, or nil.
func (b *Backend) unfit(r node.HelloReply) error {
	for _, e := range []*backend.UnfitError{tooOld(r), wrongMode(r.Mode), b.replica(r), evicts(r)} {
		if e != nil {
			return e
		}
	}
	return nil
}

func unfit(reason backend.UnfitReason, format string, args ...any) *backend.UnfitError {
	return &backend.UnfitError{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

func tooOld(r node.HelloReply) *backend.UnfitError {
	major, _, _ := strings.Cut(r.Version, ".")
	if v, err := strconv.Atoi(major); err != nil || v < minVersion {
		return unfit(backend.UnfitVersion, "server version %q is below %d", r.Version, minVersion)
	}
	return nil
}

func wrongMode(mode string) *backend.UnfitError {
	if mode != "standalone" {
		return unfit(backend.UnfitMode, "server runs in %s mode", mode)
	}
	return nil
}

func (b *Backend) replica(r node.HelloReply) *backend.UnfitError {
	if r.Role == "master" {
		return nil
	}
	if p := b.listed(r.Master); p != nil {
		e := unfit(backend.UnfitReplica, "server is a replica of %s, which is a node itself", p.node.Name())
		e.Other = p.node.Name()
		return e
	}
	e := unfit(backend.UnfitReplica, "server is a replica of %s", r.Master)
	e.Other = r.Master
	return e
}

// listed returns the node with the address host:port, as INFO writes it, or nil.
func (b *Backend) listed(address string) *peer {
	for _, p := range b.peers {
		named, _, _ := strings.Cut(p.node.Name(), "/")
		if host, port, err := net.SplitHostPort(named); err == nil && host+":"+port == address {
			return p
		}
	}
	return nil
}

func evicts(r node.HelloReply) *backend.UnfitError {
	if r.MaxMemory > 0 && r.MaxMemoryPolicy != "noeviction" {
		return unfit(backend.UnfitEviction, "server may evict leases: maxmemory-policy is %s", r.MaxMemoryPolicy)
	}
	return nil
}

func sameServer(as string) *backend.UnfitError {
	e := unfit(backend.UnfitSameServer, "it is the same server as %s", as)
	e.Other = as
	return e
}

func notPermitted(err error) *backend.UnfitError {
	return &backend.UnfitError{Reason: backend.UnfitPermission, Err: err}
}
