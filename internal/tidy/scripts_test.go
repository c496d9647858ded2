package tidy

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// contract is what the comment at the head of a script says.
type contract struct {
	comment string // what a line of comment begins with
	says    []*regexp.Regexp
}

func words(comment string, words ...string) contract {
	c := contract{comment: comment}
	for _, w := range words {
		c.says = append(c.says, regexp.MustCompile(`(?i)\b`+w+`\b`))
	}
	return c
}

var (
	// A Lua script is called by position: its head is the only signature.
	luaContract = words("--", "KEYS", "ARGV", "reply")
	// A shell script is run by hand: how, what it changes, and how it ends.
	shellContract = words("#", "usage", "changes", "exit")
)

func TestLuaContracts(t *testing.T) {
	for _, f := range files(t, func(f *file) bool { return path.Ext(f.path) == ".lua" }) {
		report(t, luaContract.missing(f))
	}
}

func TestShellContracts(t *testing.T) {
	for _, f := range files(t, func(f *file) bool { return path.Ext(f.path) == ".sh" || f.path == ".ci/run" }) {
		report(t, shellContract.missing(f))
		if !strings.Contains(f.text, "\nset -eu") {
			t.Errorf("%s: goes on after an error: it has no set -eu", f.path)
		}
	}
}

// missing finds what the head of f does not say.
func (c contract) missing(f *file) (violations []string) {
	var head []string
	for _, line := range strings.Split(f.text, "\n") {
		if !strings.HasPrefix(line, c.comment) {
			break
		}
		head = append(head, line)
	}
	for _, re := range c.says {
		if !re.MatchString(strings.Join(head, "\n")) {
			violations = append(violations, f.path+": the comment at its head does not say "+re.String())
		}
	}
	return violations
}

func TestMissingContractIsFound(t *testing.T) {
	lua := parse(t, "a.lua", "-- Takes a lease.\n-- KEYS[1] guard\n-- ARGV[1] time\n\n-- Reply: what\nlocal x = 1\n")
	wantViolations(t, luaContract.missing(lua), "reply")
	wantViolations(t, luaContract.missing(parse(t, "b.lua", "local x = 1\n")), "KEYS", "ARGV", "reply")
	shell := parse(t, "a.sh", "#!/bin/sh\n# Usage: a.sh\n# Changes nothing.\n# Exit status: 0\nset -eu\n")
	wantViolations(t, shellContract.missing(shell))
}
