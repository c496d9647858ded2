package tidy

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// requirement is why the root module depends on another one: whoever imports
// the library gets all of these into their build list.
type requirement struct {
	reason string
	// testOnly modules are imported by tests alone.
	testOnly bool
}

var requirements = map[string]requirement{
	"github.com/redis/rueidis":          {reason: "the Redis client: one multiplexed connection per node, RESP3, TLS"},
	"golang.org/x/sys":                  {reason: "clocks that go on while the machine is suspended; rueidis needs it too"},
	"github.com/anishathalye/porcupine": {reason: "a second opinion on whether a history is that of a lock", testOnly: true},
	"go.uber.org/goleak":                {reason: "goroutines that tests leave behind", testOnly: true},
}

type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
}

func TestRootModuleRequirements(t *testing.T) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	report(t, unexpectedRequirements(mod))
	report(t, testOnlyImports(files(t, func(f *file) bool {
		return f.ast != nil && !f.isTest() && !inNestedModule(t, f.path)
	})))
}

func unexpectedRequirements(mod goMod) (violations []string) {
	unused := make(map[string]bool)
	for path := range requirements {
		unused[path] = true
	}
	for _, r := range mod.Require {
		if _, ok := requirements[r.Path]; !ok {
			violations = append(violations, "go.mod requires "+r.Path+", which no reason is given for")
		}
		delete(unused, r.Path)
	}
	for path := range unused {
		violations = append(violations, "go.mod does not require "+path+" any more: strike its reason")
	}
	return violations
}

// testOnlyImports finds code that users run and that imports what is there
// for tests.
func testOnlyImports(list []*file) (violations []string) {
	for _, f := range list {
		for _, p := range f.imports() {
			for module, r := range requirements {
				if r.testOnly && matches(module+"/...", p) {
					violations = append(violations, f.path+": only tests may import "+p)
				}
			}
		}
	}
	return violations
}

// inNestedModule reports whether path belongs to a module other than the root.
func inNestedModule(t *testing.T, path string) bool {
	t.Helper()
	mods, err := filepath.Glob(filepath.Join(root, "*", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob(filepath.Join(root, "*", "*", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(append(mods, deeper...), func(mod string) bool {
		dir, _ := filepath.Rel(root, filepath.Dir(mod))
		return strings.HasPrefix(path, filepath.ToSlash(dir)+"/")
	})
}

func TestUnexpectedRequirementIsFound(t *testing.T) {
	var mod goMod
	text := `{"Require": [{"Path": "github.com/redis/rueidis"}, {"Path": "golang.org/x/sys"},
		{"Path": "github.com/anishathalye/porcupine"},
		{"Path": "github.com/a/b", "Indirect": true}]}`
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		t.Fatal(err)
	}
	wantViolations(t, unexpectedRequirements(mod), "github.com/a/b", "go.uber.org/goleak any more")
	wantViolations(t, testOnlyImports([]*file{
		parse(t, "a.go", "package a\nimport \"go.uber.org/goleak\"\n"),
		parse(t, "b.go", "package a\nimport \"github.com/redis/rueidis\"\n"),
	}), "a.go: only tests")
}
