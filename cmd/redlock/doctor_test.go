//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"example.com/redlock/testkit/redisserver"
)

// patients are three servers of a test's own, declared.
func patients(t *testing.T) (servers []*redisserver.Server, env []string) {
	t.Helper()
	servers = redisserver.StartN(t, 3)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	env = []string{"REDLOCK_NODES=" + strings.Join(urls, ",")}
	runEnv(t, env, "init").mustSucceed(t)
	return servers, env
}

// One line for each node that is well, and the sum.
func TestDoctorOfWellNodes(t *testing.T) {
	servers, env := patients(t)
	var want string
	for _, s := range servers {
		want += s.Addr() + "/0: votes\n"
	}
	want += "all nodes: 3 of 3 nodes vote, 2 are needed\n"
	runEnv(t, env, "doctor").want(t, 0, want)

	r := runEnv(t, env, "doctor", "-v")
	for _, check := range []string{
		"reachable: answers in ", "permissions: all commands", "clock: runs as fast as ours",
		"persistence: AOF off, no snapshots; a restart costs a quarantine of 45.3s\n",
	} {
		if strings.Count(r.stdout, "  ok, "+check) != 3 {
			t.Errorf("%q is not there three times: %s", check, r.stdout)
		}
	}
	if r.code != 0 || r.stderr != "" {
		t.Error(r)
	}
	if r := runEnv(t, env, "doctor", "x"); r.code != 64 {
		t.Error(r)
	}
}

// A hint is no reason to fail, and a warning is none to say that nothing works.
func TestDoctorExitCodes(t *testing.T) {
	servers, env := patients(t)
	evict := []string{"CONFIG", "SET", "maxmemory", "50mb", "maxmemory-policy", "allkeys-lru"}
	for _, step := range []struct {
		node  int
		spoil []string
		code  int
		says  string // on standard output
		err   string
	}{
		{0, []string{"ACL", "SETUSER", "default", "-scan"}, 0,
			"/0: votes\n  hint, permissions: not permitted: SCAN; redlock list does not work\n    to do: give the user the rights of ", ""},
		{0, []string{"HSET", "redlock:tokens", "clock", "1"}, 1, "\n  warning, counters: ", ""},
		{1, evict, 1, "/0: does not vote\n  failure, eviction: server may evict leases: maxmemory-policy is allkeys-lru\n    to do: CONFIG SET ", ""},
		{2, evict, 78, "all nodes: 1 of 3 nodes vote, 2 are needed\n  failure, votes: ",
			"redlock: no quorum: 1 of 3 nodes vote, 2 are needed\n"},
		{2, []string{"CONFIG", "SET", "requirepass", "x"}, 77, "failure, login: ",
			"redlock: no quorum: 1 of 3 nodes vote, 2 are needed\n"},
	} {
		redisDo(t, servers[step.node].URL(), step.spoil...)
		r := runEnv(t, env, "doctor")
		if r.code != step.code || !strings.Contains(r.stdout, step.says) || !strings.Contains(r.stderr, step.err) ||
			(r.stderr == "") != (step.err == "") {
			t.Errorf("%s: %+v", step.spoil, r)
		}
	}
	for _, s := range servers[1:] {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	r := runEnv(t, env, "doctor")
	if r.code != 69 || strings.Count(r.stdout, "failure, reachable: ") != 2 || strings.Count(r.stderr, "\n") != 1 {
		t.Error(r)
	}
}

func TestDoctorOfNewNodes(t *testing.T) {
	env := []string{"REDLOCK_NODES=" + strings.Join(ownServers(t, 3), ",")}
	for range 2 { // the first changes nothing
		if r := runEnv(t, env, "doctor"); r.code != 69 || strings.Count(r.stdout, "to do: if it is new: redlock init") != 3 {
			t.Error(r)
		}
	}
	runEnv(t, env, "init").mustSucceed(t)
	runEnv(t, env, "doctor").mustSucceed(t)
}

// Every check of every node is an object, with the fields and the names that
// README.md lists.
func TestDoctorJSON(t *testing.T) {
	servers, env := patients(t)
	redisDo(t, servers[2].URL(), "FLUSHALL")
	r := runEnv(t, env, "doctor", "--json")
	if r.code != 1 || r.stderr != "" {
		t.Error(r)
	}
	seen := make(map[string]int)
	for line := range strings.Lines(r.stdout) {
		f := decode[findingLine](t, line)
		seen[f.Check]++
		want := "ok"
		if f.Node == servers[2].Addr()+"/0" && f.Check == "declared" {
			want = "failure"
		}
		if f.Severity != want || f.Text == "" || (f.Remedy == "") != (want == "ok") {
			t.Errorf("%+v", f)
		}
	}
	if seen["reachable"] != 3 || seen["votes"] != 1 {
		t.Errorf("%v", seen)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for check := range seen {
		if !strings.Contains(string(readme), "`"+check+"`") {
			t.Errorf("README.md does not have the check %q", check)
		}
	}
	r = runEnv(t, env, "doctor", "--json", "--max-ttl", "20")
	if r.code != 78 || !strings.Contains(r.stderr, `"code":78`) || strings.Count(r.stdout, "30000 on the node") != 2 {
		t.Error(r)
	}
}

// The nodes that up starts are well, whatever they run on.
func TestDoctorOfEmbeddedNodes(t *testing.T) {
	p := startEnv(t, []string{"REDLOCK_NODES="}, "up", "--nodes", "3", "--port", freePorts(t), "--engine", "embedded")
	r := runEnv(t, []string{p.line()}, "doctor")
	if r.code != 0 || strings.Count(r.stdout, "\n") != 4 {
		t.Error(r)
	}
}
