// Package loopback listens on loopback ports that stay free while nobody
// listens on them.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that Linux (from 32768), macOS and
// Windows (from 49152) use for outgoing connections. A port in that range can
// be lost to any outgoing connection while its server is down, and a client
// that dials it again and again ends up, sooner or later, connected to itself.
const (
	lowestPort  = 20000
	highestPort = 31999
)

const host = "127.0.0.1"

// Listen listens on the port, or on a free one that it picks if port is 0.
func Listen(port int) (*net.TCPListener, error) {
	if port != 0 {
		return listen(port)
	}
	const tries = 100
	var last error
	for range tries {
		l, err := listen(lowestPort + rand.IntN(highestPort-lowestPort+1))
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no free loopback port in %d tries: %w", tries, last)
}

// FreePort returns a port that was free a moment ago. Whoever binds it must be
// ready to find it taken, and ask again.
func FreePort() (int, error) {
	l, err := Listen(0)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Addr returns host:port of a loopback port.
func Addr(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func listen(port int) (*net.TCPListener, error) {
	l, err := net.Listen("tcp", Addr(port))
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}
