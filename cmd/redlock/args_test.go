//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"example.com/redlock"
	"github.com/spf13/pflag"
)

// TestArguments: flags end at NAME, the -- is optional, nothing after it is
// ours.
func TestArguments(t *testing.T) {
	run(t, "init", "--namespace", "run") // which one of them uses
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"run", "n", "echo", "x"}, 0, "x\n"},
		{[]string{"run", "n", "--", "echo", "x"}, 0, "x\n"},
		{[]string{"run", "--", "n", "echo", "x"}, 0, "x\n"},
		{[]string{"run", "-n", "--", "n", "--", "echo", "x"}, 0, "x\n"},
		{[]string{"run", "n", "echo", "--", "-n", "--json"}, 0, "-- -n --json\n"},
		{[]string{"run", "n", "--", "echo", "--", "x"}, 0, "-- x\n"},
		{[]string{"run", "n", "printf", "%s", "--help"}, 0, "--help"},
		{[]string{"run", "n", "echo", "$HOME", "*"}, 0, "$HOME *\n"}, // no shell
		{[]string{"run", "n", "printf", "[%s]", "", "a b"}, 0, "[][a b]"},
		{[]string{"run", "run", "echo", "run"}, 0, "run\n"},
		{[]string{"--namespace", "run", "run", "run", "echo", "x"}, 0, "x\n"},
		{[]string{"run", "-w30", "--ttl=10", "n", "echo", "x"}, 0, "x\n"},
		{[]string{"run", "-qn", "n", "echo", "x"}, 0, "x\n"},
		{[]string{"run", "n"}, 64, ""},
		{[]string{"run", "n", "--"}, 64, ""},
		{[]string{"run", "--", "n"}, 64, ""},
		{[]string{"run", "n", "--", "-n"}, 127, ""}, // the name of a command
		{[]string{"run", "redis-a", "echo", "redis://a"}, 0, "redis://a\n"},
		{[]string{"run", "", "true"}, 64, ""},
		{[]string{"run", strings.Repeat("n", 513), "true"}, 64, ""},
		{[]string{"run", "redlock:x", "true"}, 64, ""},
		{[]string{"run", "--nonsense", "n", "true"}, 64, ""},
		{[]string{"run", "-w", "n", "true"}, 64, ""}, // n is no duration
		{[]string{"run", "-w", "-1", "n", "true"}, 64, ""},
		{[]string{"run", "-n", "-w", "3", "n", "true"}, 64, ""},
		{[]string{"run", "-n", "-w", "0", "n", "echo"}, 0, "\n"},
		{[]string{"run", "--ttl", "0", "n", "true"}, 64, ""},
		{[]string{"run", "--ttl", "31", "n", "true"}, 64, ""},
		{[]string{"run", "--ttl", "0.0105", "n", "true"}, 64, ""},
		{[]string{"run", "--grace", "10.1", "n", "true"}, 64, ""}, // more than a third of 30 s
		{[]string{"run", "--grace", "10", "n", "true"}, 0, ""},
		{[]string{"run", "--grace", "0", "n", "true"}, 0, ""},
		{[]string{"run", "--max-hold", "0", "n", "true"}, 64, ""},
		{[]string{"run", "--min-hold", "3", "--max-hold", "2", "n", "true"}, 64, ""},
		{[]string{"run", "--if-held", "maybe", "n", "true"}, 64, ""},
		{[]string{"run", "--if-held", "skip", "-E", "3", "n", "true"}, 64, ""},
		{[]string{"run", "-E", "256", "n", "true"}, 64, ""},
		{[]string{"run", "--owner", "a\nb", "n", "true"}, 64, ""},
		{[]string{"run", "--quorum", "2", "n", "true"}, 78, ""}, // of five
		{[]string{"acquire"}, 64, ""},
		{[]string{"acquire", "a", "b"}, 64, ""},
		{[]string{"release"}, 64, ""},
		{[]string{"extend", "x", "y"}, 64, ""},
		{[]string{"status", "a", "b"}, 64, ""},
		{[]string{"list", "a", "b"}, 64, ""},
		{[]string{"list", "["}, 64, ""},
		{[]string{"break"}, 64, ""},
		{[]string{"init", "x"}, 64, ""},
		{[]string{"init", "--reconfigure", "--force"}, 64, ""},
		{[]string{"init", "--old", "127.0.0.1:1"}, 64, ""},
		{[]string{"init", "--reconfigure", "--old", ","}, 64, ""},
		{[]string{"init", "--reconfigure", "--old", "redis://[", "--nodes", "127.0.0.1:1"}, 64, ""},
		{[]string{"up", "--nodes", "0"}, 64, ""},
		{[]string{"up", "--engine", "steam"}, 64, ""},
		{[]string{"completion", "ksh"}, 64, ""},
		{[]string{"nonsense"}, 64, ""},
		{[]string{"--nonsense"}, 64, ""},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := run(t, c.args...)
			if r.code != c.code || r.stdout != c.out {
				t.Errorf("exit %d with %q, want %d with %q; stderr:\n%s", r.code, r.stdout, c.code, c.out, r.stderr)
			}
			if r.code != 0 && (!strings.HasPrefix(r.stderr, "redlock: ") || strings.Contains(r.stderr, "redlock: redlock: ")) {
				t.Errorf("the error does not say once who speaks:\n%s", r.stderr)
			}
		})
	}
}

// TestUsageErrorsSayWhatToDo: not only that something is wrong.
func TestUsageErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"run", "n", "--ttl", "5", "true"}, "flags go before NAME"},
		{[]string{"status", "--nodes", "redis://a:1", "redis://b:1"}, "separate nodes with commas"},
		{[]string{"run", "--nodes", "redis://a:1", "UNIX:///b", "true"}, "separate nodes with commas"},
		{[]string{"init", "redis://a:1", "rediss://b:1"}, "separate nodes with commas"},
		{[]string{"up", "--nodes", "three"}, `--nodes: "three" is not a whole number`},
		{[]string{"up", "--nodes", "-1"}, "--nodes must be above zero"},
		{[]string{"up", "--port", "65533"}, "the ports of 5 nodes must lie between 1 and 65535"},
		{[]string{"run", "--ttl", "soon", "n", "true"}, `--ttl: "soon" is not a duration`},
		{[]string{"extend", "--ttl", "0", "x"}, "--ttl must be above zero"},
		{[]string{"status", "--json=perhaps"}, `--json: "perhaps" is not true or false`},
		{[]string{"status", "--quorum", "99999999999999999999"}, "is not in range"},
	} {
		r := run(t, c.args...)
		if r.code != 64 || !strings.Contains(r.stderr, c.says) || strings.Contains(r.stderr, "strconv") {
			t.Errorf("%q: exit %d, want 64 and %q: %s", c.args, r.code, c.says, r.stderr)
		}
	}
	if help := run(t, "up", "--help").stdout; !strings.Contains(help, "--nodes N ") {
		t.Errorf("no metavariable N:\n%s", help)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "0.5": 500 * time.Millisecond, ".5": 500 * time.Millisecond,
		"30s": 30 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "0": 0, "0s": 0,
	} {
		if got, err := parseSeconds(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "-1", "-1s", "+", "s", ".", "1.2.3", "1e3", "inf", "NaN", "0x10", "1_0", "30 s", "99999999999999", "9999999h"} {
		if got, err := parseSeconds(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestPlanDefaults(t *testing.T) {
	for _, c := range []struct {
		flags string
		conf  config
		grace time.Duration
		o     redlock.AcquireOptions
	}{
		{"", config{}, 5 * time.Second, redlock.AcquireOptions{TTL: 30 * time.Second, MaxHold: -1}},
		{"--ttl 12", config{}, 2 * time.Second, redlock.AcquireOptions{TTL: 12 * time.Second, MaxHold: -1}},
		{"", config{TTL: seconds(6 * time.Second)}, time.Second, redlock.AcquireOptions{TTL: 6 * time.Second, MaxHold: -1}},
		{"", config{MaxTTL: seconds(12 * time.Second)}, 2 * time.Second, redlock.AcquireOptions{TTL: 12 * time.Second, MaxHold: -1}},
		{"", config{MaxTTL: seconds(time.Minute)}, 5 * time.Second, redlock.AcquireOptions{TTL: 30 * time.Second, MaxHold: -1}},
		{"-n", config{}, 5 * time.Second, redlock.AcquireOptions{TTL: 30 * time.Second, MaxHold: -1, Wait: redlock.NoWait}},
		{"-w 0", config{}, 5 * time.Second, redlock.AcquireOptions{TTL: 30 * time.Second, MaxHold: -1, Wait: redlock.NoWait}},
		{"-w 2 --max-hold 1m", config{}, 5 * time.Second, redlock.AcquireOptions{TTL: 30 * time.Second, MaxHold: time.Minute, Wait: 2 * time.Second}},
	} {
		var f runFlags
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		f.bind(flags)
		if err := flags.Parse(strings.Fields(c.flags)); err != nil {
			t.Fatal(err)
		}
		p, err := f.plan(flags.Changed, c.conf, nil, "n", []string{"true"})
		if err != nil {
			t.Errorf("%q: %v", c.flags, err)
			continue
		}
		if p.grace != c.grace || p.acquire.TTL != c.o.TTL || p.acquire.MaxHold != c.o.MaxHold || p.acquire.Wait != c.o.Wait {
			t.Errorf("%q: grace %v, %+v", c.flags, p.grace, *p.acquire)
		}
	}
}
