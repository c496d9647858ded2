package sim

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

// root is the module, seen from this package.
const root = "../.."

// mutant is a mistake planted into the library, from testdata/mutants:
//
//	# why it is one
//	run TestSim 1 200
//	file internal/core/round.go
//	--- old
//	text that is there exactly once
//	--- new
//	text in its place
//
// run names the test that must fail, the first seed and the number of seeds. More
// texts may follow, and another file with its own, after a line "--- file" with its
// path.
type mutant struct {
	test, first, seeds string
	edits              []edit
}

type edit struct{ file, old, new string }

func parseMutant(text string) (mutant, error) {
	var m mutant
	var file string
	head, rest, _ := strings.Cut(text, "--- old\n")
	for line := range strings.Lines(head) {
		switch words := strings.Fields(line); {
		case len(words) == 2 && words[0] == "file":
			file = words[1]
		case len(words) == 4 && words[0] == "run":
			m.test, m.first, m.seeds = words[1], words[2], words[3]
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
	if m.edits[0].file == "" || m.test == "" {
		return m, fmt.Errorf("lacks file or run")
	}
	return m, nil
}

// apply plants the mistake into the files that it is about, which read returns.
// Each old text must be there once, or the mutant no longer fits the code.
func (m mutant) apply(read func(file string) (string, error)) (planted map[string]string, err error) {
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

var seedThatFailed = regexp.MustCompile(`seed (\d+) failed: (.*)`)

// TestMutants demands of each mutant that some seed catches it.
func TestMutants(t *testing.T) {
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
			m, err := parseMutant(string(text))
			if err != nil {
				t.Fatal(err)
			}
			m.mustBeCaught(t)
		})
	}
}

func (m mutant) mustBeCaught(t *testing.T) {
	planted, err := m.apply(func(file string) (string, error) {
		source, err := os.ReadFile(filepath.Join(root, file))
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
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		replaced[original] = write(strings.ReplaceAll(file, "/", "_"), []byte(source))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-overlay="+write("overlay.json", overlay), "-count=1", "-timeout=2m",
		"-run=^"+m.test+"$", ".", "-sim.seed="+m.first, "-sim.seeds="+m.seeds)
	out, err := cmd.CombinedOutput()
	caught := seedThatFailed.FindStringSubmatch(string(out))
	switch {
	case err == nil:
		t.Errorf("not caught by %s seeds of %s", m.seeds, m.test)
	case caught == nil:
		t.Errorf("%s failed, but not because of a seed:\n%s", m.test, out)
	default:
		t.Logf("killed by seed %s of %s: %s", caught[1], m.test, caught[2])
	}
}

func TestMutantsThatNoLongerFitAreFound(t *testing.T) {
	m, err := parseMutant("# why\nrun TestSim 1 9\nfile a.go\n--- old\n\tx()\n--- new\n\ty()\n--- old\nz\n--- new\n\n--- file b.go\n--- old\nu\n--- new\nv\n")
	if err != nil || m.test != "TestSim" || m.first != "1" || m.seeds != "9" {
		t.Fatalf("%+v, %v", m, err)
	}
	plant := func(a, b string) (map[string]string, error) {
		return m.apply(func(file string) (string, error) { return map[string]string{"a.go": a, "b.go": b}[file], nil })
	}
	if got, err := plant("\tx()\nz\n", "u"); got["a.go"] != "\ty()\n\n" || got["b.go"] != "v" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, sources := range [][2]string{{"\tx()\n\tx()\nz\n", "u"}, {"\tx()\n", "u"}, {"\tx()\nz\n", "x"}} {
		if _, err := plant(sources[0], sources[1]); err == nil {
			t.Errorf("fits %q", sources)
		}
	}
}
