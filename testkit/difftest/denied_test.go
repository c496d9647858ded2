package difftest

import (
	"testing"

	"example.com/redlock/internal/node"
)

// A user that may run scripts, but not what they do: the operation says so, and
// fails alone.
func TestDeniedWithinAScript(t *testing.T) {
	f := setUp(t)
	f.want(node.Granted, acquire(idA, 1000))
	f.do("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@all", "-set", "-del")
	n := f.open("redis://reader:pw@" + f.server.Addr())
	reply, err := n.Call(t.Context(), f.call(acquire(idB, 1000), op(node.Release, idA), op(node.Inspect, "")))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []node.Code{node.Failed, node.Failed, node.Held} {
		if a := reply.Answers[i]; a.Code != want || a.Denied != (want == node.Failed) {
			t.Errorf("operation %d: %+v", i, a)
		}
	}
}
