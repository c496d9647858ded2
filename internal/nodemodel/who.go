package nodemodel

import "example.com/redlock/internal/node"

// Line tells who waits for a name at now, in microseconds since 1970.
func (n *Node) Line(l node.Line, now int64) node.LineReply {
	n.sweepSets(now)
	line, waiters := l.Keys.Line(l.Name), l.Keys.Waiters(l.Name)
	var reply node.LineReply
	for _, waiter := range n.ordered(line) {
		reply.Waiting++
		text, _ := n.Field(waiters, waiter)
		e, ok := node.ParseEntry(waiter, text)
		if e.Ticket = n.zsets[line][waiter]; ok && reply.Waiting <= l.Most {
			reply.First = append(reply.First, e)
		}
	}
	return reply
}
