package nodemodel

import "example.com/redlock/internal/node"

// Hello introduces a client at now, the node's clock in microseconds since
// 1970.
func (n *Node) Hello(h node.Hello, now int64) node.HelloReply {
	key, own := h.Keys.Guard(), h.Conf.Guard(n.runID)
	reply := node.HelloReply{
		Time: now, Standing: node.StandingOK, Guard: own, RunID: n.runID,
		Version: "7.0.0", Role: "master", Mode: "standalone", MaxMemoryPolicy: "noeviction",
	}
	shown, ok := n.get(key, now)
	if shown.Text == own {
		return reply
	}
	switch _, conf := node.SplitGuard(shown.Text); {
	case !ok:
		reply.Standing = node.StandingNew
	case conf == h.Conf.String():
		reply.Standing, reply.Previous = node.StandingAdopted, shown.Text
	default:
		reply.Standing, reply.Guard = node.StandingMismatch, shown.Text
		return reply
	}
	if !h.Look {
		n.Set(key, Value{Text: own})
	}
	return reply
}
