//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.com/redlock"
)

// configured parses flags as any subcommand does and returns the configuration.
func configured(t *testing.T, paths, env []string, flags ...string) (config, string, error) {
	t.Helper()
	var stderr bytes.Buffer
	a := &app{err: &stderr, env: env, configPaths: paths}
	cmd := a.rootCommand()
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	cmd.PersistentPreRun(cmd, nil)
	c, err := a.configure(cmd.Flags().Changed)
	<-a.said.silence()
	return c, stderr.String(), err
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "redlock.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigFlagsBeatEnvironmentBeatsFile(t *testing.T) {
	first := writeConfig(t, "nodes: [a:1, b:2]\nnamespace: filed\nquorum: 2\nplain-keys: true\nttl: 20\nmax-ttl: 25s\n")
	second := writeConfig(t, "nodes: c:3\nnamespace: second\n")
	absent := filepath.Join(t.TempDir(), "absent.yaml")
	env := []string{"REDLOCK_NODES=d:4, e:5"}
	for _, c := range []struct {
		name  string
		paths []string
		env   []string
		flags []string
		want  config
	}{
		{"nothing", []string{absent}, nil, nil, config{}},
		{"first file", []string{first, second}, nil, nil, config{Nodes: nodeList{"a:1", "b:2"}, Namespace: "filed", Quorum: 2, PlainKeys: true, TTL: seconds(20 * time.Second), MaxTTL: seconds(25 * time.Second)}},
		{"second file", []string{absent, second}, nil, nil, config{Nodes: nodeList{"c:3"}, Namespace: "second"}},
		{"file by flag", []string{first}, nil, []string{"--config", second}, config{Nodes: nodeList{"c:3"}, Namespace: "second"}},
		{"environment", []string{second}, env, nil, config{Nodes: nodeList{"d:4", "e:5"}, Namespace: "second"}},
		{"empty environment", []string{second}, []string{"REDLOCK_NODES="}, nil, config{Nodes: nodeList{"c:3"}, Namespace: "second"}},
		{"flags", []string{first}, env, []string{"--nodes", "f:6", "--namespace=n", "--quorum", "1", "--plain-keys=false", "--max-ttl", "9", "--cluster", "c", "--connect-wait", "1.5"},
			config{Nodes: nodeList{"f:6"}, Namespace: "n", Quorum: 1, TTL: seconds(20 * time.Second), MaxTTL: seconds(9 * time.Second), Cluster: "c", ConnectWait: seconds(1500 * time.Millisecond)}},
	} {
		got, _, err := configured(t, c.paths, c.env, c.flags...)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

// TestConfigHasEveryOption: what is added to the library's Options can be
// configured, or is listed here with the reason why not.
func TestConfigHasEveryOption(t *testing.T) {
	text := "namespace: n\ncluster: c\nplain-keys: true\nttl: 1s\nmax-ttl: 2s\nquorum: 3\nnode-timeout: 4ms\nconnect-wait: 5\ndrift-rate: 0.06\ndrift-floor: 7ms\ncounter-only: true\n"
	c, err := parseConfig("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := reflect.ValueOf(*c.options(nil))
	for i := range o.NumField() {
		switch name := o.Type().Field(i).Name; name {
		case "Logger", "Observer": // code, not data
		default:
			if o.Field(i).IsZero() {
				t.Errorf("Options.%s cannot be configured", name)
			}
		}
	}
	if want := (redlock.Options{Namespace: "n", Cluster: "c", PlainKeys: true, TTL: time.Second, MaxTTL: 2 * time.Second, Quorum: 3, NodeTimeout: 4 * time.Millisecond, ConnectWait: 5 * time.Second, DriftRate: 0.06, DriftFloor: 7 * time.Millisecond, CounterOnly: true}); !reflect.DeepEqual(*c.options(nil), want) {
		t.Errorf("%+v", *c.options(nil))
	}
}

func TestConfigErrors(t *testing.T) {
	const secret = "hunter2"
	for name, c := range map[string]struct{ text, says string }{
		"unknown key":   {"nodez: [a:1]\n", "nodez"},
		"not YAML":      {"nodes: [a:1\n", "line"},
		"bad duration":  {"ttl: soon\n", "soon"},
		"bad number":    {"quorum: many\n", "line 1"},
		"empty URL":     {"nodes: 'a:1,,b:2'\n", "empty URL"},
		"nested nodes":  {"nodes: {a: 'redis://:" + secret + "@a'}\n", "nodes is not a list"},
		"nested in one": {"nodes: [[':" + secret + "@']]\n", "nodes is not a list"},
	} {
		path := writeConfig(t, c.text)
		r := run(t, "run", "--config", path, "n", "true")
		if r.code != 78 || !strings.Contains(r.stderr, c.says) || !strings.Contains(r.stderr, path) {
			t.Errorf("%s: exit %d, %s", name, r.code, r.stderr)
		}
		if strings.Contains(r.stderr, secret) {
			t.Errorf("%s: the password is out: %s", name, r.stderr)
		}
	}
	for _, args := range [][]string{
		{"run", "--config", "/nonexistent.yaml", "n", "true"},
		{"run", "--nodes", "redis://:" + secret + "@a:1,,", "n", "true"},
		{"run", "--nodes", "redis://:" + secret + "@a:port", "n", "true"},
		{"run", "--nodes", "nonsense://:" + secret + "@a", "n", "true"},
		{"--json", "run", "--nodes", "redis://u:" + secret + "@[::1", "n", "true"},
		{"status", "-v", "--nodes", "redis://u:" + secret + "@127.0.0.1:1"},
	} {
		r := run(t, args...)
		if want := 78; r.code != want && args[0] != "status" {
			t.Errorf("%q: exit %d, %s", args, r.code, r.stderr)
		}
		if strings.Contains(r.stderr+r.stdout, secret) {
			t.Errorf("%q: the password is out: %s", args, r.stderr)
		}
	}
}

func TestNoNodesSaysWhatToDo(t *testing.T) {
	for _, args := range [][]string{{"run", "n", "true"}, {"acquire", "n"}, {"status"}, {"break", "n"}, {"init"}} {
		cmd := command(t, []string{"REDLOCK_NODES="}, args...)
		p := startCommand(t, cmd)
		p.wantExit(78)
		for _, way := range []string{"--nodes", "REDLOCK_NODES", "redlock.yaml", "redlock up", "--demo"} {
			if !strings.Contains(p.stderr.String(), way) {
				t.Errorf("%q does not mention %s: %s", args, way, p.stderr)
			}
		}
	}
}

// TestConfigOfOthersIsIgnored: whoever can write the file decides whom the lock
// excludes.
func TestConfigOfOthersIsIgnored(t *testing.T) {
	const nobody = 65534
	for name, spoil := range map[string]func(string) error{
		"owner": func(p string) error { return os.Chown(p, nobody, nobody) },
		"group": func(p string) error { return os.Chmod(p, 0o664) },
		"world": func(p string) error { return os.Chmod(p, 0o606) },
	} {
		if name == "owner" && os.Geteuid() != 0 {
			continue // only root can give a file away
		}
		path := writeConfig(t, "nodes: a:1\n")
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		good := writeConfig(t, "nodes: b:2\n")
		c, said, err := configured(t, []string{path, good}, nil)
		if err != nil || !reflect.DeepEqual(c.Nodes, nodeList{"b:2"}) || !strings.Contains(said, path) {
			t.Errorf("%s: %v, %v, said %q", name, c.Nodes, err, said)
		}
		// One that was asked for is not passed over.
		if _, _, err := configured(t, nil, nil, "--config", path); exitCode(err) != 78 {
			t.Errorf("%s by flag: %v", name, err)
		}
		// The same by the binary, in its directory.
		cmd := command(t, []string{"REDLOCK_NODES="}, "run", "n", "true")
		cmd.Dir = filepath.Dir(path)
		p := startCommand(t, cmd)
		p.wantExit(78)
		if !strings.Contains(p.stderr.String(), "redlock.yaml") || !strings.Contains(p.stderr.String(), "ignored") {
			t.Errorf("%s: not said: %s", name, p.stderr)
		}
	}
	if os.Geteuid() == 0 {
		// What root owns is fine for everybody.
		path := writeConfig(t, "nodes: a:1\n")
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if c, _, err := configured(t, []string{path}, nil); err != nil || len(c.Nodes) != 1 {
			t.Errorf("%v, %v", c.Nodes, err)
		}
	}
}

func TestConfigFileInTheDirectory(t *testing.T) {
	cmd := command(t, []string{"REDLOCK_NODES="}, "run", "n", "echo", "ran")
	text := "nodes:\n"
	for _, n := range nodes {
		text += "  - " + n + "\n"
	}
	if err := os.WriteFile(filepath.Join(cmd.Dir, "redlock.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, cmd)
	p.wantExit(0)
	if out := p.rest(); out != "ran\n" {
		t.Error(out)
	}
}
