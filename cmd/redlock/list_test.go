//go:build linux

package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/redlock/testkit/redisserver"
)

// rows are the lines of a table, without the runs of blanks between columns.
func rows(out string) []string {
	var rows []string
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return rows
}

// wantRows compares lines with patterns.
func wantRows(t *testing.T, r result, patterns ...string) {
	t.Helper()
	got := rows(r.stdout)
	for i, p := range patterns {
		if i >= len(got) || !regexp.MustCompile("^"+p+"$").MatchString(got[i]) {
			t.Fatalf("line %d of\n%s\ndoes not match %s; stderr:\n%s", i+1, r.stdout, p, r.stderr)
		}
	}
	if len(got) != len(patterns) {
		t.Fatalf("%d lines, want %d:\n%s", len(got), len(patterns), r.stdout)
	}
}

const (
	header = "NAME OWNER TOKEN SINCE REMAINING NODES NOTE"
	since  = `\d{16} \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S+ `
)

func TestList(t *testing.T) {
	urls := ownServers(t, 3)
	env := []string{"REDLOCK_NODES=" + strings.Join(urls, ",")}
	runEnv(t, env, "init").mustSucceed(t)
	wantRows(t, runEnv(t, env, "list"), header)
	for _, name := range []string{"a", "b c", "b*", "odd\xff", "-q"} {
		runEnv(t, env, "acquire", "--owner", "me", "--", name).mustSucceed(t)
	}
	runEnv(t, env, "break", "b c").mustSucceed(t)
	redisDo(t, urls[1], "PERSIST", "redlock:{b*}")
	redisDo(t, urls[1], "COPY", "redlock:{-q}", "redlock:{-p}")
	redisDo(t, urls[1], "PERSIST", "redlock:{-p}")
	redisDo(t, urls[2], "COPY", "redlock:{a}", "redlock:{c}")
	redisDo(t, urls[2], "SET", "redlock:{d}", "stray")
	redisDo(t, urls[2], "HSET", "redlock:{e}", "f", "v")

	r := runEnv(t, env, "list")
	if r.code != 0 || r.stderr != "" {
		t.Fatal(r)
	}
	wantRows(t, r, header,
		`-p me `+since+`forever 1/3 partial, no TTL`,
		`-q me `+since+`[23]\d(\.\d)?s 3/3 -`,
		`a me `+since+`[23]\d(\.\d)?s 3/3 -`,
		`"b c" me `+since+`[23]\d(\.\d)?s 3/3 broken`,
		`b\* me `+since+`[23]\d(\.\d)?s 3/3 no TTL`,
		`c me `+since+`[23]\d(\.\d)?s 1/3 partial`,
		`d - - - forever 1/3 partial, no lease of ours, no TTL`,
		`e - - - - 1/3 partial, no lease of ours`,
		`"odd\\xff" me `+since+`[23]\d(\.\d)?s 3/3 -`,
		``,
		`These have no TTL. If nobody works under the lock any more:`,
		`redlock break --now -- -p \(on 127.0.0.1:\d+/0\)`,
		`redlock break --now -- 'b\*' \(on 127.0.0.1:\d+/0\)`,
		`d: find out who writes its key, which is no lease, and DEL it \(on 127.0.0.1:\d+/0\)`,
	)
	wantRows(t, runEnv(t, env, "list", `b\*`), header, `b\* me .*`, ``, `These have no TTL.*`, `redlock break .*`)
	if r := runEnv(t, env, "list", "-v", "a"); r.code != 0 || strings.Count(r.stdout, `/0 refused`) != 3 {
		t.Error(r)
	}

	// What it advises helps.
	for _, name := range []string{"-p", "b*"} {
		runEnv(t, env, "break", "--now", "--", name).mustSucceed(t)
	}
	wantRows(t, runEnv(t, env, "list", "[-b]*"), header, `-q .*`, `"b c" .*`)
}

func (r result) mustSucceed(t *testing.T) {
	t.Helper()
	if r.code != 0 {
		t.Fatal(r)
	}
}

func TestListJSON(t *testing.T) {
	name := lockName(t)
	before := time.Now().Add(-time.Second)
	line := decode[handleLine](t, run(t, "acquire", "--json", "--owner", "me", name+"\xff").stdout)
	redisDo(t, nodes[0], "PERSIST", "redlock:{"+name+"\xff}")
	r := run(t, "list", "--json", name+"*")
	if r.code != 0 {
		t.Fatal(r)
	}
	st := decode[statusLine](t, r.stdout)
	at, err := time.Parse(time.RFC3339, st.Since)
	if err != nil || at.Before(before) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("since %q, %v", st.Since, err)
	}
	if st.Name != name+"\ufffd" || string(st.NameBase64) != name+"\xff" || !st.Held || st.Partial || st.Owner != "me" ||
		st.Token != line.Token || !st.NoTTL || st.RemainingMS < 1 || len(st.Nodes) != 5 || st.Nodes[0].RemainingMS != -1 {
		t.Errorf("%+v", st)
	}
	run(t, "list", "--json", "nothing").want(t, 0, "")
}

func TestListOfPlainKeys(t *testing.T) {
	urls := ownServers(t, 1)
	env := []string{"REDLOCK_NODES=" + urls[0]}
	runEnv(t, env, "init", "--plain-keys").mustSucceed(t)
	runEnv(t, env, "acquire", "--plain-keys", "job/1").mustSucceed(t)
	redisDo(t, urls[0], "SET", "job/settings", "of the application")
	redisDo(t, urls[0], "HSET", "job/hash", "f", "v")
	wantRows(t, runEnv(t, env, "list", "--plain-keys", "job/*"), header, "job/1 .* 1/1 -")
	// Under the other kind of keys there is nothing, which is no answer.
	r := runEnv(t, env, "list", "job/*")
	wantRows(t, r, header)
	if r.code != 78 || !strings.Contains(r.stderr, "plain keys") {
		t.Error(r)
	}
}

// Exit codes are those of status.
func TestListWithoutSomeNodes(t *testing.T) {
	servers := redisserver.StartN(t, 3)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	env := []string{"REDLOCK_NODES=" + strings.Join(urls, ",")}
	runEnv(t, env, "init").mustSucceed(t)
	runEnv(t, env, "acquire", "x").mustSucceed(t)
	if err := servers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	r := runEnv(t, env, "list")
	wantRows(t, r, header, `x .* 2/3 -`)
	if r.code != 0 || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "node does not vote (node="+servers[0].Addr()+"/0 ") {
		t.Error(r)
	}
	if err := servers[1].Freeze(); err != nil {
		t.Fatal(err)
	}
	r = runEnv(t, env, "list")
	wantRows(t, r, header, `x .* 1/3 partial as far as known`)
	if r.code != 69 || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "1 of 3 nodes answered, need 2") {
		t.Error(r)
	}
}

func TestListNotPermitted(t *testing.T) {
	urls := ownServers(t, 1)
	redisDo(t, urls[0], "ACL", "SETUSER", "u", "on", ">pw", "~redlock:*", "&redlock:wake:*", "+@all", "-scan")
	r := run(t, "list", "--nodes", strings.Replace(urls[0], "//", "//u:pw@", 1))
	if r.code != 77 || !strings.Contains(r.stderr, "not permitted") || strings.Contains(r.stderr, "pw") {
		t.Error(r)
	}
}

func TestShellWords(t *testing.T) {
	for _, s := range []string{"a", "a/b.c:1", "-x", "*", "it's", "a b", "ключ", "\xff'\n", "$(x)", "`x`", `\`} {
		out, err := exec.Command("bash", "-c", "printf %s "+shellWord(s)).Output()
		if err == nil && s == "-x" {
			out, err = exec.Command("bash", "-c", "printf %s -- "+shellWord(s)).Output()
			out = []byte(strings.TrimPrefix(string(out), "--"))
		}
		if err != nil || string(out) != s {
			t.Errorf("%q became %q, %v", s, out, err)
		}
	}
}
