//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/redlock/testkit/redisserver"
)

// What docs/operations.md and README.md tell people to paste is what is tried here.

// block returns the block of a kind that has some text in a document.
func block(t *testing.T, file, kind, with string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", file))
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(string(raw), with)
	fence := "\n```" + kind + "\n"
	from := strings.LastIndex(before, fence)
	end, _, closed := strings.Cut(after, "\n```\n")
	if from < 0 || !closed {
		t.Fatalf("%s has no block of %q with %q", file, kind, with)
	}
	return before[from+len(fence):] + with + end
}

// configDir is a directory with a configuration for the nodes, where the longest TTL is
// short.
func configDir(t *testing.T, urls []string, more ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text := "max-ttl: 5s\nttl: 5s\nnodes: [" + strings.Join(urls, ", ") + "]\n" + strings.Join(more, "\n")
	if err := os.WriteFile(filepath.Join(dir, "redlock.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shell starts a line of shell, in a directory with a configuration.
func shell(t *testing.T, dir, line string, env ...string) *process {
	t.Helper()
	cmd := command(t, nil)
	cmd.Path, cmd.Args, cmd.Dir = "/bin/sh", []string{"sh", "-c", line}, dir
	cmd.Env = append([]string{"PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "HOME=/"}, env...)
	return startCommand(t, cmd)
}

// TestOperationsUser: the user that the documents create has all the rights that
// everything needs.
func TestOperationsUser(t *testing.T) {
	rule := block(t, "docs/operations.md", "", "ACL SETUSER")
	if other := block(t, "SECURITY.md", "", "ACL SETUSER"); other != rule {
		t.Errorf("SECURITY.md has another rule:\n%s\n%s", other, rule)
	}
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprint("plain keys ", plain), func(t *testing.T) {
			t.Parallel()
			var urls []string
			servers := redisserver.StartN(t, 3)
			for _, s := range servers {
				words := strings.Fields(strings.Replace(rule, "PASSWORD", "pw", 1))
				if plain {
					words = append(words, "~*")
				}
				if got := redisDo(t, s.URL(), words...); got != "+OK" {
					t.Fatal(got)
				}
				urls = append(urls, strings.Replace(s.URL(), "//", "//redlock:pw@", 1))
			}
			dir := configDir(t, urls, fmt.Sprint("plain-keys: ", plain))
			do := func(line string) { t.Helper(); shell(t, dir, line).wantExit(0) }
			do("redlock init")
			do(`h=$(redlock acquire x) && redlock status x && h=$(redlock extend "$h") && redlock release "$h"`)
			do("redlock run x sleep 2.5 && redlock run x redlock list | grep -q '^x '")
			do("redlock run x sh -c 'redlock break x; sleep 10'; test $? = 79")
			do("test $(redlock doctor | wc -l) = 4")
			// A quarantine ends as well, and with counters that are sure.
			redisDo(t, servers[2].URL(), "FLUSHALL")
			do("redlock run x sh -c 'until redlock doctor; do sleep 0.1; done'")
		})
	}
}

// TestOperationsUserInTheFile: the user that the configuration file creates may do what the
// other may, and nobody else gets in.
func TestOperationsUserInTheFile(t *testing.T) {
	text := block(t, "docs/operations.md", "conf", "user default")
	_, commands, _ := strings.Cut(block(t, "docs/operations.md", "", "ACL SETUSER"), "-@all")
	if !strings.HasSuffix(text, "-@all"+commands) {
		t.Errorf("other commands than the rule has:\n%s\n%s", text, commands)
	}
	var args []string
	for line := range strings.Lines(strings.Replace(text, "PASSWORD", "pw", 1)) {
		words := strings.Fields(line)
		args = append(append(args, "--"+words[0]), words[1:]...)
	}
	var urls []string
	for _, s := range redisserver.StartN(t, 3, args...) {
		if got := redisDo(t, s.URL(), "PING"); !strings.HasPrefix(got, "-NOAUTH") {
			t.Error(got)
		}
		urls = append(urls, strings.Replace(s.URL(), "//", "//redlock:pw@", 1))
	}
	shell(t, configDir(t, urls), "redlock init && redlock run x true && test $(redlock doctor | wc -l) = 4").wantExit(0)
}

// TestOperationsServers: servers that are set up as told are well.
func TestOperationsServers(t *testing.T) {
	var urls []string
	for range 3 {
		var args []string
		for line := range strings.Lines(block(t, "docs/operations.md", "conf", "save")) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			args = append(args, "--"+name, strings.Trim(value, `"`))
		}
		urls = append(urls, redisserver.StartN(t, 1, append(args, "--maxmemory", "20mb")...)[0].URL())
	}
	dir := configDir(t, urls)
	shell(t, dir, "redlock init && test $(redlock doctor | wc -l) = 4").wantExit(0)
}

// TestOperationsRestart: the line ends when all nodes vote again.
func TestOperationsRestart(t *testing.T) {
	servers := redisserver.StartN(t, 3)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	dir := configDir(t, urls)
	shell(t, dir, "redlock init").wantExit(0)
	if err := servers[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, "redlock doctor").wantExit(1)
	shell(t, dir, block(t, "docs/operations.md", "sh", "rolling-restart")).wantExit(0)
	shell(t, dir, "redlock doctor").wantExit(0)
}

// TestOperationsReplace: a node with the old list refuses the new one, until it has
// been changed.
func TestOperationsReplace(t *testing.T) {
	servers := redisserver.StartN(t, 4)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	dir := configDir(t, urls[:3])
	shell(t, dir, "redlock init && redlock run x true").wantExit(0)
	newer := "--nodes=" + strings.Join(urls[1:], ",")
	shell(t, dir, "redlock doctor "+newer).wantExit(78)
	shell(t, dir, block(t, "docs/operations.md", "sh", "NEW_LIST"),
		"NEW_LIST="+strings.Join(urls[1:], ","), "LEFT_BEHIND="+urls[0]).wantExit(0)
	shell(t, dir, "redlock doctor "+newer).wantExit(69) // in quarantine, all of them
	shell(t, dir, "redlock run "+newer+" x true && until redlock doctor "+newer+"; do redlock run "+newer+" x true; done").wantExit(0)
}

// TestReadmeShell: the commands of the README work, in the order they stand in.
func TestReadmeShell(t *testing.T) {
	t.Parallel()
	lines := strings.Replace(block(t, "README.md", "sh", "redlock run nightly"), "600", "60", 1) // not so long after a failure
	// Who types is slower than the first command is.
	lines = strings.Replace(lines, " & ", " & until redlock status nightly | grep -q held; do sleep 0.01; done ", 1)
	var urls []string
	for _, s := range redisserver.StartN(t, 3) { // other tests leave things for doctor to find
		urls = append(urls, s.URL())
	}
	env := "REDLOCK_NODES=" + strings.Join(urls, ",")
	shell(t, t.TempDir(), "redlock init", env).wantExit(0)
	p := shell(t, t.TempDir(), lines, env)
	var out strings.Builder
	if _, err := io.Copy(&out, p.stdout); err != nil {
		t.Fatal(err)
	}
	p.wantExit(0)
	if strings.Count(out.String(), "mine\n") != 1 || !strings.Contains(p.stderr.String(), "redlock: nightly is held by") {
		t.Errorf("%s\n%s", out.String(), p.stderr)
	}
}

// The blocks of shell are valid as they stand.
func TestOperationsShell(t *testing.T) {
	for _, with := range []string{"rolling-restart", "NEW_LIST"} {
		if out, err := exec.Command("sh", "-n", "-c", block(t, "docs/operations.md", "sh", with)).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}
