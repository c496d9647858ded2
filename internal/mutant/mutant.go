// Package mutant plants mistakes into the library and demands that tests catch them:
// a test that cannot fail proves nothing.
package mutant

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Mutant is a mistake planted into the library, from testdata/mutants:
//
//	# why it is one
//	run TestSim 1 200
//	file internal/core/round.go
//	--- old
//	text that is there exactly once
//	--- new
//	text in its place
//
// run names the test that must fail, and what it is to be told. More texts may follow,
// and another file with its own, after a line "--- file" with its path.
type Mutant struct {
	Test  string
	Args  []string
	edits []edit
}

type edit struct{ file, old, new string }

// Parse reads a mutant.
func Parse(text string) (Mutant, error) {
	var m Mutant
	var file string
	head, rest, _ := strings.Cut(text, "--- old\n")
	for line := range strings.Lines(head) {
		switch words := strings.Fields(line); {
		case len(words) == 2 && words[0] == "file":
			file = words[1]
		case len(words) >= 2 && words[0] == "run":
			m.Test, m.Args = words[1], words[2:]
		}
	}
	for part := range strings.SplitSeq(rest, "--- old\n") {
		part, next, _ := strings.Cut(part, "--- file ")
		before, after, ok := strings.Cut(part, "--- new\n")
		if !ok {
			return m, fmt.Errorf("an old text without a new one")
		}
		m.edits = append(m.edits, edit{file, strings.TrimSuffix(before, "\n"), strings.TrimSuffix(after, "\n")})
		if next != "" {
			file = strings.TrimSpace(next)
		}
	}
	if m.edits[0].file == "" || m.Test == "" {
		return m, fmt.Errorf("lacks file or run")
	}
	return m, nil
}

// Apply plants the mistake into the files that it is about, which read returns.
// Each old text must be there once, or the mutant no longer fits the code.
func (m Mutant) Apply(read func(file string) (string, error)) (planted map[string]string, err error) {
	planted = map[string]string{}
	for _, e := range m.edits {
		source, ok := planted[e.file]
		if !ok {
			if source, err = read(e.file); err != nil {
				return nil, err
			}
		}
		if n := strings.Count(source, e.old); n != 1 {
			return nil, fmt.Errorf("%s has %d times, instead of once:\n%s", e.file, n, e.old)
		}
		planted[e.file] = strings.Replace(source, e.old, e.new, 1)
	}
	return planted, nil
}

// Suite is the mutants of a package, in its testdata/mutants.
type Suite struct {
	// Root is the module, seen from the package.
	Root string
	// Flags are the flags of the package's test for the Args of a mutant.
	Flags func(args []string) []string
	// Caught matches what a test says that has caught a mutant.
	Caught *regexp.Regexp
}

// Run demands of each mutant that its test catches it.
func (s Suite) Run(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs tests for each mutant")
	}
	paths, err := filepath.Glob("testdata/mutants/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no mutants: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			s.mustCatch(t, m)
		})
	}
}

func (s Suite) mustCatch(t *testing.T, m Mutant) {
	args := []string{"test", "-overlay=" + s.overlay(t, m), "-count=1", "-timeout=4m", "-run=" + m.pattern(), "."}
	out, err := exec.Command("go", append(args, s.Flags(m.Args)...)...).CombinedOutput()
	caught := s.Caught.Find(out)
	switch {
	case err == nil:
		t.Errorf("not caught by %s %v", m.Test, m.Args)
	case caught == nil:
		t.Errorf("%s failed, but not because it caught the mutant:\n%s", m.Test, out)
	default:
		t.Logf("killed by %s: %s", m.Test, caught)
	}
}

// pattern matches the test, or the test and its subtest, and no other.
func (m Mutant) pattern() string {
	test, sub, ok := strings.Cut(m.Test, "/")
	if !ok {
		return "^" + test + "$"
	}
	return "^" + test + "$/^" + sub + "$"
}

// overlay writes the files of the mutant, and what tells go to take them in place of
// the ones that are right.
func (s Suite) overlay(t *testing.T, m Mutant) string {
	planted, err := m.Apply(func(file string) (string, error) {
		source, err := os.ReadFile(filepath.Join(s.Root, file))
		return string(source), err
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replaced := map[string]string{}
	for file, source := range planted {
		original, err := filepath.Abs(filepath.Join(s.Root, file))
		if err != nil {
			t.Fatal(err)
		}
		replaced[original] = write(strings.ReplaceAll(file, "/", "_"), []byte(source))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	return write("overlay.json", overlay)
}
