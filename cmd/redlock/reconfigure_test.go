//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
)

// A command under a lock of the old configuration is ended; the lock is had under
// the new one once that is over, with a larger token; and a client that has not
// heard of it is told.
func TestReconfigure(t *testing.T) {
	t.Parallel()
	urls := ownServers(t, 4)
	on := func(urls []string, args ...string) []string {
		return append([]string{"--max-ttl", "2", "--nodes", strings.Join(urls, ",")}, args...)
	}
	before, after := urls[:3], urls[1:]
	run(t, on(before, "init")...).mustSucceed(t)
	first := decode[handleLine](t, run(t, on(before, "acquire", "--json", "n")...).stdout)
	holder := startCommand(t, command(t, nil, on(before, "run", "m", "sleep", "60")...))
	await.True(t, 5*time.Second, "the command has its lock", func() bool {
		return strings.Contains(run(t, on(before, "status", "m")...).stdout, "held by")
	})

	r := run(t, on(after, "init", "--reconfigure", "--old", urls[0])...)
	changed := time.Now()
	r.mustSucceed(t)
	if strings.Count(r.stdout, " quarantined: was given another configuration; votes in ") != 3 || strings.Count(r.stdout, " fenced\n") != 1 {
		t.Error(r)
	}
	holder.wantExit(79)
	second := decode[handleLine](t, run(t, on(after, "acquire", "--json", "--wait", "20", "n")...).stdout)
	if waited := time.Since(changed); second.Token <= first.Token || waited < 2*time.Second {
		t.Errorf("after %v: %+v, before %+v", waited, second, first)
	}

	if r := run(t, on(before, "run", "-n", "n", "true")...); r.code != 78 || !strings.Contains(r.stderr, "members: ") {
		t.Error(r)
	}
	r = run(t, on(after, "init", "--reconfigure", "--json")...)
	if r.code != 64 || !strings.Contains(r.stderr, "use init without --reconfigure") || decode[nodeLine](t, strings.SplitAfter(r.stdout, "\n")[0]).Standing != "ok" {
		t.Error(r)
	}
}
