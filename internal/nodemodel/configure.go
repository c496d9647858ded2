package nodemodel

import (
	"strconv"
	"strings"

	"example.com/redlock/internal/node"
)

// The fields of a quarantine that a change of configuration sets.
const (
	needField = "need" // how long it has to last, in milliseconds
	wasField  = "was"  // the configuration before the node was fenced
	keptField = "kept" // the counters have forgotten nothing
)

// Configure gives the node another configuration, under which it is in
// quarantine.
func (n *Node) Configure(c node.Configure, now int64) node.ConfigureReply {
	shown, ok := n.get(c.Keys.Guard(), now)
	guard, known := node.ParseGuard(shown.Text)
	reply := node.ConfigureReply{Time: now, Shown: shown.Text, Was: node.NoConf}
	if known {
		reply.Was = guard.Conf
		reply.Whole = guard.Life == n.Life() && (guard.Nonce == "" || n.kept(c.Keys))
	}
	if was, fenced := n.Field(c.Keys.Quarantine(), wasField); fenced && guard.Nonce != "" {
		reply.Was = was
	}
	reply.Highest, reply.ByClock = n.highest(c.Keys)
	if shown.Text != c.Shown || ok && !known || known && !newer(c.Conf, guard.Conf) {
		return reply
	}
	reply.Done = true
	n.Set(c.Keys.Guard(), Value{Text: node.Guard{Life: n.Life(), Nonce: c.Nonce, Conf: c.Conf.String()}.String()})
	n.Delete(c.Keys.Quarantine())
	n.Delete(c.Keys.Clock()) // others may have another timeline
	n.setCredit(c.Keys, c.Nonce, 0)
	if reply.Whole || !c.Fence {
		n.SetField(c.Keys.Quarantine(), keptField, "1")
	}
	if c.Fence {
		n.SetField(c.Keys.Quarantine(), wasField, reply.Was)
	} else {
		n.SetField(c.Keys.Quarantine(), needField, strconv.FormatInt(c.Need, 10))
		n.raiseFloor(c)
	}
	return reply
}

// raiseFloor lets the counters go on above those of other nodes.
func (n *Node) raiseFloor(c node.Configure) {
	tokens := c.Keys.Tokens()
	text, _ := n.Field(tokens, node.FloorField)
	floor := c.Floor
	if stored, ok := node.ParseNumber(text); ok {
		floor = max(floor, stored)
	}
	n.SetField(tokens, node.FloorField, format(floor))
	delete(n.hashes[tokens], node.ClockField)
	if c.ByClock {
		n.SetField(tokens, node.ClockField, "1")
	}
}

// newer reports whether a node that has the configuration stored may be given
// conf.
func newer(conf node.Conf, stored string) bool {
	if stored == node.NoConf || stored == conf.String() {
		return true
	}
	digits, _, _ := strings.Cut(stored, "|")
	epoch, ok := node.ParseNumber(digits)
	return ok && epoch < conf.Epoch
}

// setIf stores a field of the quarantine, if there is anything to store.
func (n *Node) setIf(keys node.Keyspace, field, text string) {
	if text != "" {
		n.SetField(keys.Quarantine(), field, text)
	}
}
