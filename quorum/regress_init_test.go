package quorum

import (
	"errors"
	"testing"
	"testing/synctest"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// Two nodes are blank, and the third does not permit this operator to see what it has.
// That may be records, and then the two have lost theirs.
func TestInitWhereANodeDoesNotPermitIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &liar{Node: memnode.New("c")}
		l.say(func(*node.HelloReply) error { return &node.CallError{Denied: true, Err: errors.New("NOPERM eval")} })
		b, err := New([]Node{memnode.New("a"), memnode.New("b"), l}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range b.Init(t.Context(), backend.InitOptions{}) {
			if s.Err == nil {
				t.Errorf("%s votes", s.Node)
			}
		}
		_ = b.Close(t.Context())
	})
}
