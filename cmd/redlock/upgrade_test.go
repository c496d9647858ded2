//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/redlock/testkit/redisserver"
)

// TestF77Upgrade runs the version that is in use beside the one under test on the
// same nodes, as a rolling upgrade does: they exclude each other, take over each
// other's handles, and share one order of tokens. testdata/landed names the
// commit; a step that changes what is stored, or said to nodes, moves it on only
// once both sides of the change have been in use.
func TestF77Upgrade(t *testing.T) {
	old := buildOld(t)
	versions := map[string]string{"old": old, "new": binary}
	urls := ownServers(t, 3)
	env := "REDLOCK_NODES=" + strings.Join(urls, ",")
	use := func(version string, args ...string) (code int, stdout string) {
		cmd := command(t, []string{env}, args...)
		cmd.Path = versions[version]
		var out, err bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &err
		if e := cmd.Run(); e != nil && cmd.ProcessState == nil {
			t.Fatal(e)
		}
		if code := cmd.ProcessState.ExitCode(); code > 79 {
			t.Errorf("%s %v: %d, %s", version, args, code, err.String())
		}
		return cmd.ProcessState.ExitCode(), strings.TrimSpace(out.String())
	}

	// Tokens follow the clock unless the counters are ahead of it, as here: then
	// only a version that reads the same counters goes on from the other's.
	last := uint64(time.Now().Add(time.Hour).UnixMicro())
	for _, url := range urls {
		redisDo(t, url, "HSET", "redlock:tokens", "floor", strconv.FormatUint(last, 10))
	}
	for i := range 6 {
		holder, other := "old", "new"
		if i%2 == 1 {
			holder, other = other, holder
		}
		code, handle := use(holder, "acquire", "--ttl", "20", "upgrade")
		if code != 0 {
			t.Fatalf("%s: acquire: %d", holder, code)
		}
		if code, _ := use(other, "run", "-n", "upgrade", "true"); code != exitHeld {
			t.Errorf("%s, while %s holds: %d, want %d", other, holder, code, exitHeld)
		}
		code, handle = use(other, "extend", handle)
		if code != 0 {
			t.Errorf("%s extends a handle of %s: %d", other, holder, code)
		}
		if code, _ := use(holder, "release", handle); code != 0 {
			t.Errorf("%s releases a handle of %s: %d", holder, other, code)
		}
		for _, version := range []string{holder, other} {
			code, token := use(version, "run", "-n", "upgrade", "sh", "-c", "echo $REDLOCK_FENCE")
			next, err := strconv.ParseUint(token, 10, 64)
			if code != 0 || err != nil || next <= last {
				t.Errorf("%s: code %d, token %q after %d", version, code, token, last)
			}
			last = next
		}
	}
}

// ownServers starts servers that no other test uses.
func ownServers(t *testing.T, n int) (urls []string) {
	for _, s := range redisserver.StartN(t, n) {
		urls = append(urls, s.URL())
	}
	return urls
}

// buildOld builds the version that testdata/landed names. Where that commit is
// not at hand, as in a source archive, it is the present one: two binaries still
// meet.
func buildOld(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/landed")
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(raw))
	if exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run() != nil {
		t.Logf("commit %s is not here: the present version stands in for it", commit)
		return binary
	}
	dir := t.TempDir()
	archive := exec.Command("git", "archive", "--format=tar", "-o", filepath.Join(dir, "old.tar"), commit)
	archive.Dir = "../.." // git archive packs what is below its directory
	unpack := exec.Command("tar", "-xf", "old.tar")
	unpack.Dir = dir
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "old"), "./cmd/redlock")
	build.Dir = dir
	for _, cmd := range []*exec.Cmd{archive, unpack, build} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	return filepath.Join(dir, "old")
}
