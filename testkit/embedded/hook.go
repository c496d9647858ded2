package embedded

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// hook runs before each command, those of scripts included.
type hook struct {
	redis *miniredis.Miniredis
	clock *clock
	info  []section
	peers sync.Map // *server.Peer of each client connection
}

// run reports whether it has answered the command.
func (h *hook) run(c *server.Peer, cmd string, args ...string) bool {
	// Miniredis is locked while a script runs: it must not be told the time by
	// the script's own commands.
	if h.fromClient(c) {
		h.clock.tell(h.redis)
	}
	switch {
	case cmd == "INFO":
		return h.answerInfo(c, args)
	case cmd == "CLUSTER":
		// Miniredis would pass for a cluster of one, on a port it does not have.
		c.WriteError("ERR This instance has cluster support disabled")
		return true
	case cmd == "PING" && c.Resp3 && len(args) == 0:
		// On a connection that subscribes, miniredis answers as in RESP2.
		c.WriteInline("PONG")
		return true
	}
	return false
}

// fromClient tells commands of clients from those of scripts. A peer made for a
// script has its context from the beginning, that of a client gets one with its
// first command, after this hook.
func (h *hook) fromClient(c *server.Peer) bool {
	if c.Ctx != nil {
		_, known := h.peers.Load(c)
		return known
	}
	if _, known := h.peers.LoadOrStore(c, nil); !known {
		c.OnDisconnect(func() { h.peers.Delete(c) })
	}
	return true
}

// section is a part of what INFO tells.
type section struct{ name, text string }

// info is what a node is asked about: who it is, that it is a master on its
// own, and that it forgets nothing by eviction. The version is one that has
// every command the scripts use.
func info(runID string) []section {
	return []section{
		{"server", lines("# Server", "redis_version:7.0.15", "redis_mode:standalone", "run_id:"+runID)},
		{"memory", lines("# Memory", "maxmemory:0", "maxmemory_policy:noeviction")},
		{"persistence", lines("# Persistence", "loading:0", "aof_enabled:0")},
		{"replication", lines("# Replication", "role:master", "connected_slaves:0",
			"master_replid:"+randomHex(), "master_replid2:"+strings.Repeat("0", 40))},
		{"cluster", lines("# Cluster", "cluster_enabled:0")},
	}
}

// answerInfo answers with the sections asked for, all if none is named. It
// leaves to miniredis what it knows itself.
func (h *hook) answerInfo(c *server.Peer, args []string) bool {
	var asked []string
	for _, a := range args {
		asked = append(asked, strings.ToLower(a))
	}
	all := len(asked) == 0 || slices.ContainsFunc(asked, func(a string) bool {
		return a == "default" || a == "all" || a == "everything"
	})
	var texts []string
	for _, s := range h.info {
		if all || slices.Contains(asked, s.name) {
			texts = append(texts, s.text)
		}
	}
	if len(texts) == 0 {
		return false
	}
	c.WriteBulk(strings.Join(texts, "\r\n"))
	return true
}

func lines(ls ...string) string { return strings.Join(ls, "\r\n") + "\r\n" }

// randomHex returns 40 digits, the length of the ids that servers make.
func randomHex() string {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}
