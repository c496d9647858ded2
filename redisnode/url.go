package redisnode

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

const defaultPort = "6379"

// target is where and as whom to connect.
type target struct {
	name           string
	network        string // as net.Dial has it
	address        string
	user, password string
	db             int
	tls            *tls.Config // nil: none
}

// parseURL takes apart what Open documents. net/url would refuse the raw
// passwords that people have, and quote them in its errors.
func parseURL(raw string, config *tls.Config) (target, error) {
	if strings.ContainsAny(raw, " \t\r\n") {
		// Two URLs that were meant as a list would otherwise pass for one with
		// an odd password, and the password be sent to the wrong server.
		return target{}, errors.New("redisnode: bad node URL: it contains white space (separate URLs with commas; " +
			"in a password, write a space as %20)")
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		scheme, rest = "redis", raw
	}
	var t target
	var err error
	switch strings.ToLower(scheme) {
	case "redis":
		t, err = parseTCP(rest)
	case "rediss":
		if t, err = parseTCP(rest); err == nil {
			t.tls = tlsFor(t.address, config)
		}
	case "unix":
		t, err = parseUnix(rest)
	default:
		err = errors.New("the scheme is none of redis, rediss, unix")
	}
	if err == nil && config != nil && t.tls == nil {
		err = errors.New("TLS options need a rediss URL")
	}
	if err != nil {
		return target{}, fmt.Errorf("redisnode: bad node URL: %w", err)
	}
	return t, nil
}

func parseTCP(rest string) (target, error) {
	t := target{network: "tcp"}
	// The last @ ends the credentials: a host has none.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if err := t.setCredentials(rest[:at]); err != nil {
			return target{}, err
		}
		rest = rest[at+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	hostport, path, _ := strings.Cut(rest, "/")
	if err := t.setDB(path, query); err != nil {
		return target{}, err
	}
	host, port, err := splitHostPort(hostport)
	if err != nil {
		return target{}, err
	}
	t.address = net.JoinHostPort(host, port)
	t.name = t.address + "/" + strconv.Itoa(t.db)
	return t, nil
}

func parseUnix(rest string) (target, error) {
	t := target{network: "unix"}
	if !strings.HasPrefix(rest, "/") {
		// A path begins at a slash; what is before it ends with an @.
		credentials, path, ok := cutLast(rest, "@/")
		if !ok {
			return target{}, errors.New("the path of a socket must begin with a slash")
		}
		if err := t.setCredentials(credentials); err != nil {
			return target{}, err
		}
		rest = "/" + path
	}
	path, query, _ := strings.Cut(rest, "?")
	if err := t.setDB("", query); err != nil {
		return target{}, err
	}
	t.address = filepath.Clean(path)
	if t.address == string(filepath.Separator) {
		return target{}, errors.New("no path of a socket")
	}
	t.name = t.address + "/" + strconv.Itoa(t.db)
	return t, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (t *target) setCredentials(s string) error {
	user, password, ok := strings.Cut(s, ":")
	if !ok || password == "" {
		// Other clients take user@host for a user, for a password, or for both.
		return errors.New("credentials without a password: write user:password@ or :password@")
	}
	t.user, t.password = unescape(user), unescape(password)
	return nil
}

// unescape decodes s if it is validly encoded; else its percent signs are
// meant as they stand.
func unescape(s string) string {
	if decoded, err := url.PathUnescape(s); err == nil {
		return decoded
	}
	return s
}

func (t *target) setDB(path, query string) error {
	text := path
	if query != "" {
		key, value, _ := strings.Cut(query, "=")
		if key != "db" || path != "" && path != value {
			return errors.New("the only parameter is db, once")
		}
		text = value
	}
	if text == "" && query == "" {
		return nil
	}
	db, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errors.New("the database is no number")
	}
	t.db = int(db)
	return nil
}

// splitHostPort returns the one way to write a host, and the port.
func splitHostPort(s string) (host, port string, err error) {
	host, port = s, defaultPort
	bracketed := strings.HasPrefix(s, "[")
	if bracketed && strings.HasSuffix(s, "]") {
		host = s[1 : len(s)-1]
	} else if bracketed || strings.Contains(s, ":") {
		if host, port, err = net.SplitHostPort(s); err != nil {
			return "", "", errors.New("no host:port (an IPv6 host needs brackets)")
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", "", errors.New("the port is no number from 1 to 65535")
	}
	// An address with a zone would be another node on each client's host.
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		return addr.String(), formatUint(n), nil
	}
	host = strings.ToLower(host)
	if bracketed || host == "" || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return "", "", errors.New("the host is no name or address")
	}
	return host, formatUint(n), nil
}

// tlsFor returns the configuration for a host, which it verifies unless config
// names another.
func tlsFor(address string, config *tls.Config) *tls.Config {
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	return config
}
