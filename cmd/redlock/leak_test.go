//go:build linux

package main

import (
	"strings"
	"testing"
)

// TestNoPasswordIsRepeated: wherever the URL of a node stands by mistake, its
// password is in nothing that is said about that.
func TestNoPasswordIsRepeated(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{
		"redis://u:" + secret + "@h:1", "REDISS://:" + secret + "@h", "unix://u:" + secret + "@/run/sock",
		"redis://u:a@" + secret + " \"\n" + secret + "@h",
	} {
		file := func(text string) []string { return []string{"status", "--config", writeConfig(t, text)} }
		quoted := "'" + strings.ReplaceAll(url, "\n", "\n\n") + "'"
		for _, c := range []struct {
			code int
			args []string
		}{
			{64, []string{"status", url}},
			{64, []string{"status", "--nodes", "a:1", url}},
			{64, []string{"status", "--nodes", url, url}},
			{64, []string{"run", "--nodes", url, url, "true"}},
			{64, []string{"run", "-n", url, "true"}},
			{64, []string{"run", "n", "-" + url}},
			{127, []string{"run", "n", url}},
			{64, []string{"acquire", "-n", url}},
			{64, []string{"break", url}},
			{64, []string{"release", url}},
			{64, []string{"extend", url}},
			{64, []string{"init", url}},
			{64, []string{"up", url}},
			{127, []string{"delay-start", url}},
			{64, []string{"delay-start", "--max-ttl", url, "true"}},
			{64, []string{"completion", url}},
			{64, []string{url}},
			{64, []string{"--" + url}},
			{64, []string{"-x" + url}},
			{64, []string{"run", "--ttl", url, "n", "true"}},
			{64, []string{"run", "-w", url, "n", "true"}},
			{64, []string{"run", "-E", url, "n", "true"}},
			{64, []string{"run", "--if-held", url, "n", "true"}},
			{64, []string{"run", "--owner", url + "\t", "n", "true"}},
			{64, []string{"status", "--quorum", url}},
			{64, []string{"status", "--plain-keys=" + url}},
			{78, []string{"status", "--config", url}},
			{78, []string{"status", "--nodes", "x" + url}},
			{64, []string{"up", "--nodes", url}},
			{64, []string{"up", "--port", url}},
			{64, []string{"up", "--engine", url}},
			{78, file(quoted + ": 1\n")},
			{78, file("namespace: a\n" + quoted + ": 1\n" + quoted + ": 2\n")},
			{78, file("ttl: " + quoted + "\n")},
			{78, file("quorum: " + quoted + "\n")},
			{78, file("ttl: *" + url + "\n")},
			{78, file("ttl: !" + url + " x\n")},
			{78, file("nodes: {" + quoted + ": 1}\n")},
		} {
			for _, mode := range []string{"", "-v", "--json"} {
				args := c.args
				if mode != "" {
					args = append([]string{mode}, args...)
				}
				r := run(t, args...)
				if r.code != c.code {
					t.Errorf("%q: exit %d, want %d: %s", args, r.code, c.code, r.stderr)
				}
				if strings.Contains(r.stdout+r.stderr, secret) {
					t.Errorf("%q: the password is out: %s%s", args, r.stdout, r.stderr)
				}
			}
		}
	}
}
