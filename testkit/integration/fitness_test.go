package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/backend"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

// unfitFor is why a node is unfit, empty if it is not.
func unfitFor(err error) backend.UnfitReason {
	var u *redlock.UnfitError
	if !errors.As(err, &u) {
		return ""
	}
	return u.Reason
}

// TestUnfitReasonsOfServers: each real server that must not vote says why, in a
// word that programs can tell apart.
func TestUnfitReasonsOfServers(t *testing.T) {
	t.Parallel()
	good := start(t, 2)
	for name, tt := range map[string]struct {
		url    func(t *testing.T) string
		reason backend.UnfitReason
		other  string
	}{
		"cluster":  {serverURL("--cluster-enabled", "yes"), backend.UnfitMode, ""},
		"sentinel": {startSentinel, backend.UnfitMode, ""},
		"replica":  {serverURL("--replicaof", "127.0.0.1 1"), backend.UnfitReplica, "127.0.0.1:1"},
		"replica of a node": {serverURL("--replicaof", replicaOf(good.servers[0])),
			backend.UnfitReplica, good.servers[0].Addr() + "/0"},
		"eviction": {serverURL("--maxmemory", "50mb", "--maxmemory-policy", "volatile-lru"), backend.UnfitEviction, ""},
		"no EVAL":  {serverURL("--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""), backend.UnfitPermission, ""},
		"no INFO":  {userURL("-info"), backend.UnfitPermission, ""},
		"no GET":   {userURL("-get"), backend.UnfitPermission, ""},
		"no keys":  {userURL("resetkeys"), backend.UnfitPermission, ""},

		"no PUBLISH":         {userURL("-publish"), backend.UnfitPermission, ""},
		"no SUBSCRIBE":       {userURL("-subscribe"), backend.UnfitPermission, ""},
		"no channels":        {userURL("resetchannels", "&redlock:*:wake:*"), backend.UnfitPermission, ""},
		"no sorted sets":     {userURL("-@sortedset"), backend.UnfitPermission, ""},
		"PUBLISH is renamed": {serverURL("--rename-command", "PUBLISH", ""), backend.UnfitPermission, ""},
	} {
		t.Run(name, func(t *testing.T) {
			lk := openBlank(t, append(good.urls(), tt.url(t)), &redlock.Options{NodeTimeout: generous})
			s := lk.Nodes(t.Context())[2]
			var u *redlock.UnfitError
			if s.Standing != "unfit" || !errors.As(s.Err, &u) || u.Reason != tt.reason || u.Other != tt.other {
				t.Fatalf("%+v, want %s about %q", s, tt.reason, tt.other)
			}
			is(t, s.Err, []error{redlock.ErrUnfit})
			if errors.Is(s.Err, redlock.ErrNotPermitted) != (tt.reason == backend.UnfitPermission) {
				t.Errorf("not permitted? %v", s.Err)
			}
		})
	}
}

func serverURL(args ...string) func(*testing.T) string {
	return func(t *testing.T) string { return redisserver.StartN(t, 1, args...)[0].URL() }
}

func replicaOf(s *redisserver.Server) string {
	host, port, _ := net.SplitHostPort(s.Addr())
	return host + " " + port
}

// userURL is a server's URL with a user who has all rights but these.
func userURL(but ...string) func(*testing.T) string {
	return func(t *testing.T) string {
		ns := start(t, 1)
		ns.text(0, append([]string{"ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all"}, but...)...)
		return "redis://u:pw@" + ns.servers[0].Addr()
	}
}

// startSentinel starts a sentinel, which only starts from a file.
func startSentinel(t *testing.T) string {
	t.Helper()
	binary, err := redisserver.Find()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	_, port, _ := net.SplitHostPort(addr)
	if err := os.WriteFile(conf, fmt.Appendf(nil, "port %s\nbind 127.0.0.1\ndir %s\n", port, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	await.True(t, patience, "the sentinel listens", func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return "redis://" + addr
}

// TestUnfitLater: a node that becomes unfit loses its vote at the next check, and
// nothing else happens: leases live on with the others. Fit again, it votes again,
// or is quarantined where its data may have gone back.
func TestUnfitLater(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil, mend [][]string
		reason      backend.UnfitReason
		then        redlock.EventKind
	}{
		"eviction": {
			[][]string{{"CONFIG", "SET", "maxmemory", "100mb"}, {"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}},
			[][]string{{"CONFIG", "SET", "maxmemory-policy", "noeviction"}},
			backend.UnfitEviction, redlock.EventNodeAccepted,
		},
		"replica": {
			[][]string{{"REPLICAOF", "127.0.0.1", "1"}}, [][]string{{"REPLICAOF", "NO", "ONE"}},
			backend.UnfitReplica, redlock.EventNodeQuarantined,
		},
		"permission": {
			[][]string{{"ACL", "SETUSER", "default", "-info"}}, [][]string{{"ACL", "SETUSER", "default", "+info"}},
			backend.UnfitPermission, redlock.EventNodeAccepted,
		},
		"PUBLISH": {
			[][]string{{"ACL", "SETUSER", "default", "-publish"}}, [][]string{{"ACL", "SETUSER", "default", "+publish"}},
			backend.UnfitPermission, redlock.EventNodeAccepted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			var events log
			lk := ns.open(&redlock.Options{Observer: events.observe})
			held := take(t, lk, "held", &redlock.AcquireOptions{TTL: 6 * time.Second})
			run := func(commands [][]string) {
				for _, c := range commands {
					if err := ns.do(2, c...).Error(); err != nil {
						t.Fatal(err)
					}
				}
			}
			run(tt.spoil)
			events.await(t, redlock.EventNodeRefused, "", 0)
			events.mu.Lock()
			for _, e := range events.events {
				if e.Kind == redlock.EventNodeRefused && (e.Node != ns.servers[2].Addr()+"/0" || unfitFor(e.Err) != tt.reason) {
					t.Errorf("event %+v, want %s", e, tt.reason)
				}
			}
			events.mu.Unlock()
			release(t, take(t, lk, "other", nil))
			run(tt.mend)
			events.await(t, tt.then, "", 0)
			if held.Context().Err() != nil || events.count(redlock.EventLost, "held") != 0 {
				t.Error("the lease was lost")
			}
			release(t, held)
		})
	}
}

// asUser makes a user with all rights on all nodes, and returns their URLs for it.
func (ns *nodes) asUser(name string) (urls []string) {
	for i, s := range ns.servers {
		ns.text(i, "ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all")
		urls = append(urls, "redis://"+name+":pw@"+s.Addr())
	}
	return urls
}

// deny takes rights from a user on all nodes.
func (ns *nodes) deny(user string, rights ...string) {
	for i := range ns.servers {
		ns.text(i, append([]string{"ACL", "SETUSER", user}, rights...)...)
	}
}

// TestALostRightToPublish: nobody is told of what the holder gives back, and those that
// wait find it by their heartbeats. From then on they tell each other.
func TestALostRightToPublish(t *testing.T) {
	t.Parallel()
	ns := start(t, 3)
	urls := ns.asUser("u")
	lk := ns.open(nil)
	held := take(t, open(t, urls, nil), "x", nil)
	var waits []*wait
	for range 3 {
		waits = append(waits, standInLine(t, lk, "x", redlock.AcquireOptions{}))
	}
	ns.deny("u", "-publish")
	release(t, held)
	for left := len(waits); left > 0; left-- {
		await.True(t, time.Second+slack, fmt.Sprintf("one of %d is served", left), func() bool {
			for i, w := range waits {
				select {
				case <-w.done:
					waits = append(waits[:i:i], waits[i+1:]...)
					release(t, w.want(t, slack))
					return true
				default:
				}
			}
			return false
		})
	}
}

// TestALineThatCannotBeUsed: where nobody may publish, or listen, any more, a caller
// that waits is served by its heartbeats or learns, soon, that it has not the right;
// one that comes later learns it at once.
func TestALineThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, rights := range map[string][]string{
		"publish": {"-publish"}, "subscribe": {"-subscribe"}, "channels": {"resetchannels"}, "sorted sets": {"-@sortedset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := start(t, 3)
			urls := ns.asUser("u")
			var events log
			lk := open(t, urls, &redlock.Options{Observer: events.observe})
			held := take(t, lk, "x", nil)
			w := standInLine(t, lk, "x", redlock.AcquireOptions{})
			ns.deny("u", rights...)
			events.await(t, redlock.EventNodeRefused, "", 2)
			_ = held.Release(t.Context())
			select {
			case <-w.done:
			case <-time.After(patience):
				t.Fatal("it waits in vain")
			}
			if w.err != nil {
				is(t, w.err, []error{redlock.ErrNotPermitted})
			}
			t.Logf("after %v: %v", w.took, w.err)

			late := openBlank(t, urls, &redlock.Options{NodeTimeout: generous})
			within(t, 0, "refusing", func() {
				_, err := late.Acquire(t.Context(), "y", nil)
				is(t, err, []error{redlock.ErrNotPermitted, redlock.ErrUnfit}, redlock.ErrHeld)
			})
		})
	}
}
