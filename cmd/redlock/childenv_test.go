//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestChildEnvironment(t *testing.T) {
	r := runEnv(t, []string{
		"REDLOCK_KEY=stale", "REDLOCK_FENCE=1", "REDLOCK_HELD=no", "REDLOCK_SECRET=x", "REDLOCK=kept", "OTHER=kept",
	}, "run", "--ttl", "12", "--owner", "it's me", "a b/ü,%", "env")
	if r.code != 0 {
		t.Fatal(r)
	}
	got := map[string]string{}
	for line := range strings.Lines(r.stdout) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, twice := got[k]; twice {
			t.Errorf("%s is there twice", k)
		}
		got[k] = v
	}
	for k, want := range map[string]string{
		"REDLOCK_HELD": "true", "REDLOCK_KEY": "a b/ü,%", "REDLOCK_OWNER": "it's me", "REDLOCK_TTL_MS": "12000",
		"REDLOCK_KEYS": "a%20b/%C3%BC%2C%25", "REDLOCK_NODES": strings.Join(nodes, ","), "REDLOCK": "kept", "OTHER": "kept",
	} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
	if number(t, got["REDLOCK_FENCE"]) < 1 {
		t.Error("no token")
	}
	if v, there := got["REDLOCK_SECRET"]; there {
		t.Errorf("REDLOCK_SECRET is still there: %q", v)
	}
}

func TestNestedRuns(t *testing.T) {
	name := lockName(t)
	// Two deep: the variables are the inner lock's, the list has both.
	r := run(t, "run", name+"/a", binary, "run", name+"/b,c", "sh", "-c", `echo "$REDLOCK_KEY $REDLOCK_KEYS"`)
	r.want(t, 0, fmt.Sprintf("%[1]s/b,c %[1]s/a,%[1]s/b%%2Cc\n", name))

	// A name in itself, with another between and a shell around, would wait for
	// itself.
	r = run(t, "run", name+"/a", binary, "run", name+"/b", "sh", "-c",
		fmt.Sprintf(`%s run "%s/a" true; echo $?`, binary, name))
	r.want(t, 0, "64\n")
	r = run(t, "run", name+"/a", binary, "acquire", name+"/a")
	r.want(t, 64, "")

	// A comma in a name is no way around it.
	r = run(t, "run", "x,y", binary, "run", "y", "echo", "in")
	r.want(t, 0, "in\n")
	r = run(t, "run", "x,y", binary, "run", "x,y", "echo", "in")
	r.want(t, 64, "")
}

func TestNamesSurviveTheEnvironment(t *testing.T) {
	all := make([]byte, 255)
	for i := range all {
		all[i] = byte(i + 1)
	}
	names := []string{"plain", "a,b", "100%", "%2C", string(all), "x y", "\xff\xfe", "ü"}
	list := encodeNames(names)
	if got := heldNames([]string{"REDLOCK_KEYS=" + list}); !slices.Equal(got, names) {
		t.Errorf("%q came back as %q", names, got)
	}
	for _, c := range []byte(list) {
		if c <= ' ' || c > '~' {
			t.Errorf("byte %#x in the list", c)
		}
	}
	if got := heldNames([]string{"REDLOCK_KEYS=not%encoded,b"}); !slices.Equal(got, []string{"not%encoded", "b"}) {
		t.Errorf("a foreign list: %q", got)
	}
	if got := heldNames(nil); got != nil {
		t.Errorf("no list: %q", got)
	}
}
