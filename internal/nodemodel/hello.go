package nodemodel

import (
	"strconv"

	"example.com/redlock/internal/node"
)

// Hello introduces a client at now, the node's clock in microseconds since
// 1970.
func (n *Node) Hello(h node.Hello, now int64) node.HelloReply {
	key, life := h.Keys.Guard(), n.Life()
	shown, ok := n.get(key, now)
	reply := node.HelloReply{
		Time: now, Guard: shown.Text, Life: life, RunID: n.runID,
		Version: "7.0.0", Role: "master", Mode: "standalone", MaxMemoryPolicy: "noeviction",
	}
	_, reply.ByClock = n.Field(h.Keys.Tokens(), node.ClockField)
	reply.Since = n.since(h.Keys)
	reply.Record = n.clock(h.Keys)
	_, reply.Durable = n.get(h.Keys.Durable(), now)
	guard, known := node.ParseGuard(shown.Text)
	next := guard
	// A node that was promoted may be behind itself, whatever its disk has.
	durable := known && reply.Durable && guard.Nonce == "" && guard.Life != life && life == n.runID
	switch {
	case durable && h.Intent == node.Trust && shown.Text == h.Suspect:
		next.Life = life
	case durable && h.Intent != node.Suspect:
		reply.Standing = node.StandingDurable
		if !h.Conf.Accepts(guard.Conf) {
			reply.Standing = node.StandingMismatch
		}
		return reply
	case !ok && h.Intent == node.Look:
		reply.Standing = node.StandingNew
		return reply
	case ok && !known:
		reply.Standing = node.StandingMismatch
		return reply
	case h.Intent == node.Declare && (!ok || guard.Conf == node.NoConf):
		next = node.Guard{Life: life, Conf: h.Conf.String()}
	case !ok:
		next = node.Guard{Life: life, Nonce: h.Nonce, Conf: node.NoConf}
	case guard.Life != life, (h.Intent == node.Suspect || h.Intent == node.Leapt) && shown.Text == h.Suspect:
		next.Life, next.Nonce = life, h.Nonce
	}
	if next != guard {
		reply.Changed, reply.Previous, reply.Guard = true, shown.Text, next.String()
		reply.Record = "" // perhaps it is another clock by now
	}
	switch {
	case next.Conf != node.NoConf && !h.Conf.Accepts(next.Conf):
		reply.Standing = node.StandingMismatch
	case next.Nonce != "":
		reply.Standing = node.StandingQuarantined
	case reply.Changed && h.Intent == node.Declare:
		reply.Standing = node.StandingNew
	default:
		reply.Standing = node.StandingOK
	}
	whole := n.kept(h.Keys)
	if reply.Changed {
		whole = h.Intent == node.Leapt && guard.Life == life && (whole || guard.Nonce == "")
	}
	var need string
	if guard.Nonce != "" && next.Nonce != "" {
		need = n.carryOver(h.Keys, &reply)
	}
	if h.Intent != node.Look {
		n.take(h, &reply, next, need, whole)
	}
	if reply.Standing == node.StandingQuarantined {
		reply.Credit = n.credit(h.Keys, next.Nonce)
	}
	reply.Kept = next.Nonce != "" && whole
	return reply
}

// carryOver returns what a change of configuration asks for: it holds for the next
// process, too.
func (n *Node) carryOver(keys node.Keyspace, reply *node.HelloReply) (need string) {
	need, _ = n.Field(keys.Quarantine(), needField)
	reply.Was, _ = n.Field(keys.Quarantine(), wasField)
	if number, ok := node.ParseNumber(need); ok {
		reply.Need = int64(number)
	}
	return need
}

// take stores what a hello that is no look has come to.
func (n *Node) take(h node.Hello, reply *node.HelloReply, next node.Guard, need string, whole bool) {
	if reply.Changed {
		n.Set(h.Keys.Guard(), Value{Text: reply.Guard})
		n.Delete(h.Keys.Quarantine())
		n.Delete(h.Keys.Clock())
		if next.Nonce != "" {
			n.setCredit(h.Keys, next.Nonce, 0)
			n.setIf(h.Keys, needField, need)
			n.setIf(h.Keys, wasField, reply.Was)
			if whole {
				n.SetField(h.Keys.Quarantine(), keptField, "1")
			}
		}
	} else if h.Record != "" && h.Former == reply.Record &&
		(reply.Standing == node.StandingOK || reply.Standing == node.StandingQuarantined) {
		n.Set(h.Keys.Clock(), Value{Text: h.Record})
		reply.Record = h.Record
	}
	if reply.Standing != node.StandingOK {
		return
	}
	switch h.Intent {
	case node.Vouch:
		n.Set(h.Keys.Durable(), Value{Text: "1"})
		reply.Durable = true
	case node.Unvouch:
		n.Delete(h.Keys.Durable())
		reply.Durable = false
	}
}

// Watch takes in how long a client has watched a quarantine, and lifts it if the
// client wants that and it has lasted long enough.
func (n *Node) Watch(w node.Watch, now int64) node.WatchReply {
	reply := node.WatchReply{Time: now}
	shown, _ := n.get(w.Keys.Guard(), now)
	guard, ok := node.ParseGuard(shown.Text)
	if !ok || shown.Text != w.Guard || guard.Nonce == "" || guard.Life != n.Life() {
		return reply
	}
	reply.Known, reply.Credit = true, n.credit(w.Keys, guard.Nonce)
	if w.Credit > reply.Credit {
		reply.Credit = w.Credit
		n.setCredit(w.Keys, guard.Nonce, w.Credit)
	}
	if _, fenced := n.Field(w.Keys.Quarantine(), wasField); w.Lift && reply.Credit >= w.Need && !fenced {
		n.lift(w, guard, now)
		reply.Lifted = true
	}
	return reply
}

// lift ends a quarantine. The counters are begun anew above the floor: what is
// left of them may be old.
func (n *Node) lift(w node.Watch, guard node.Guard, now int64) {
	tokens := w.Keys.Tokens()
	if !n.kept(w.Keys) {
		n.Delete(tokens)
		n.SetField(tokens, node.FloorField, format(w.Floor))
		n.SetField(tokens, node.SinceField, strconv.FormatInt(now, 10))
		if w.ByClock {
			n.SetField(tokens, node.ClockField, "1")
		}
	}
	n.Delete(w.Keys.Quarantine())
	if guard.Conf == node.NoConf {
		guard.Conf = w.Conf
	}
	n.Set(w.Keys.Guard(), Value{Text: node.Guard{Life: guard.Life, Conf: guard.Conf}.String()})
}

// since is when the counters began anew, 0 for never.
func (n *Node) since(keys node.Keyspace) int64 {
	text, _ := n.Field(keys.Tokens(), node.SinceField)
	since, ok := node.ParseNumber(text)
	if !ok {
		return 0
	}
	return int64(since)
}

// clock is what is kept of the node's clock, empty for nothing.
func (n *Node) clock(keys node.Keyspace) string { return n.strings[keys.Clock()].Text }

// kept reports whether the counters are known to have forgotten nothing.
func (n *Node) kept(keys node.Keyspace) bool {
	text, _ := n.Field(keys.Quarantine(), keptField)
	return text == "1"
}

// credit is what the quarantine nonce has.
func (n *Node) credit(keys node.Keyspace, nonce string) int64 {
	if of, _ := n.Field(keys.Quarantine(), "nonce"); of != nonce {
		return 0
	}
	text, _ := n.Field(keys.Quarantine(), "credit")
	credit, _ := node.ParseNumber(text)
	return int64(credit)
}

func (n *Node) setCredit(keys node.Keyspace, nonce string, credit int64) {
	n.SetField(keys.Quarantine(), "nonce", nonce)
	n.SetField(keys.Quarantine(), "credit", strconv.FormatInt(credit, 10))
}

// Tokens returns the largest number given out under any name.
func (n *Node) Tokens(t node.Tokens, now int64) node.TokensReply {
	shown, _ := n.get(t.Keys.Guard(), now)
	reply := node.TokensReply{Time: now, Voting: shown.Text == t.Guard && n.votes(t.Guard)}
	reply.Highest, reply.ByClock = n.highest(t.Keys)
	return reply
}

// highest is the largest number given out, and whether the counters rest on the
// clock.
func (n *Node) highest(keys node.Keyspace) (highest uint64, byClock bool) {
	for field, text := range n.hashes[keys.Tokens()] {
		if number, ok := node.ParseNumber(text); ok && field != node.ClockField && field != node.SinceField {
			highest = max(highest, number)
		}
	}
	_, byClock = n.Field(keys.Tokens(), node.ClockField)
	return highest, byClock
}
