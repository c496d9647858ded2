package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// before is a small repository with a nested module; after is what it must be
// once it is called github.com/you/lock.
var before = map[string]string{
	"go.mod":           "module example.org/old\n\ngo 1.26.0\n",
	"go.work":          "go 1.26.0\n\nuse (\n\t.\n\t./cmd/tool\n)\n",
	"old.go":           "package old\n\n// See https://example.org/old, not example.org/older.\nconst Answer = 42\n",
	"sub/sub.go":       "package sub\n\nimport \"example.org/old\"\n\nconst Answer = old.Answer\n",
	"cmd/tool/go.mod":  "module example.org/old/cmd/tool\n\ngo 1.26.0\n\nrequire example.org/old v0.0.0\n\nreplace example.org/old => ../..\n",
	"cmd/tool/main.go": "package main\n\nimport (\n\t\"example.org/old\"\n\t\"example.org/old/sub\"\n)\n\nfunc main() { println(old.Answer, sub.Answer) }\n",
	"docs/use.md":      "go get example.org/old, (example.org/old/sub). my.example.org/old stays. example.org/old example.org/old\n",
	"run.sh":           "go run example.org/old/cmd/tool@latest\n",
	"picture.bin":      "\x00example.org/old",
}

func write(t *testing.T, tree map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range tree {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRename(t *testing.T) {
	dir := write(t, before)
	changed, err := rename(dir, "github.com/you/lock")
	if err != nil {
		t.Fatal(err)
	}
	if changed != 7 {
		t.Errorf("changed %d files, want 7", changed)
	}
	for name, want := range map[string]string{
		"go.mod":      "module github.com/you/lock\n\ngo 1.26.0\n",
		"old.go":      strings.Replace(before["old.go"], "example.org/old,", "github.com/you/lock,", 1),
		"docs/use.md": "go get github.com/you/lock, (github.com/you/lock/sub). my.example.org/old stays. github.com/you/lock github.com/you/lock\n",
		"run.sh":      "go run github.com/you/lock/cmd/tool@latest\n",
		"picture.bin": before["picture.bin"],
		"go.work":     before["go.work"],
	} {
		if got := read(t, dir, name); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
		}
	}
	for _, args := range [][]string{{"build", "./...", "./cmd/tool"}, {"run", "./cmd/tool"}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=", "GOPROXY=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %v after the renaming: %v\n%s", args, err, out)
		}
	}
}

// TestRenameSortsImports has a new path that sorts behind a neighbour.
func TestRenameSortsImports(t *testing.T) {
	dir := write(t, map[string]string{
		"go.mod": "module example.org/old\n",
		"a.go":   "package a\n\nimport (\n\t_ \"example.org/old/b\"\n\t_ \"example.org/z\"\n)\n",
	})
	if _, err := rename(dir, "github.com/you/lock"); err != nil {
		t.Fatal(err)
	}
	want := "package a\n\nimport (\n\t_ \"example.org/z\"\n\t_ \"github.com/you/lock/b\"\n)\n"
	if got := read(t, dir, "a.go"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestRenameRefuses(t *testing.T) {
	for _, to := range []string{
		"", "lock", "host.org", "host.org/", "/host.org/lock", "host.org/a b", "https://host.org/lock",
		"host.org/../lock", "host.org/lock/", `host.org/"lock"`, "host.org/$1",
	} {
		dir := write(t, before)
		if _, err := rename(dir, to); err == nil {
			t.Errorf("%q was taken for a module path", to)
		}
		if got := read(t, dir, "go.mod"); got != before["go.mod"] {
			t.Errorf("refusing %q, go.mod was changed to %q", to, got)
		}
	}
	dir := write(t, map[string]string{
		"go.mod": before["go.mod"], "bad.go": "package bad\n\nimport \"example.org/old\n",
	})
	if _, err := rename(dir, "github.com/you/lock"); err == nil || read(t, dir, "go.mod") != before["go.mod"] {
		t.Errorf("a file that is not Go: error %v, go.mod %q", err, read(t, dir, "go.mod"))
	}
}
