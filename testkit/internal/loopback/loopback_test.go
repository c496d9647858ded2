package loopback

import (
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListenPicksDistinctPortsBelowTheOutgoingRange(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		l, err := Listen(0)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		if port < lowestPort || port > highestPort || seen[port] {
			t.Errorf("port %d: outside %d-%d, or picked twice", port, lowestPort, highestPort)
		}
		seen[port] = true
	}
}

func TestListenOnAGivenPortSaysWhenItIsTaken(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if second, err := Listen(port); err == nil {
		second.Close()
		t.Error("two listeners on one port")
	}
}
