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

// mutant is a mistake planted into one file of the library, from
// testdata/mutants:
//
//	# why it is one
//	file internal/core/round.go
//	run TestSim 1 200
//	--- old
//	text that is there exactly once
//	--- new
//	text in its place
//
// run names the test that must fail, the first seed and the number of seeds.
type mutant struct {
	file, test, first, seeds string
	edits                    []edit
}

type edit struct{ old, new string }

func parseMutant(text string) (mutant, error) {
	var m mutant
	head, rest, _ := strings.Cut(text, "--- old\n")
	for line := range strings.Lines(head) {
		switch words := strings.Fields(line); {
		case len(words) == 2 && words[0] == "file":
			m.file = words[1]
		case len(words) == 4 && words[0] == "run":
			m.test, m.first, m.seeds = words[1], words[2], words[3]
		}
	}
	for part := range strings.SplitSeq(rest, "--- old\n") {
		before, after, ok := strings.Cut(part, "--- new\n")
		if !ok {
			return m, fmt.Errorf("an old text without a new one")
		}
		m.edits = append(m.edits, edit{strings.TrimSuffix(before, "\n"), strings.TrimSuffix(after, "\n")})
	}
	if m.file == "" || m.test == "" {
		return m, fmt.Errorf("lacks file or run")
	}
	return m, nil
}

// apply plants the mistake into the source. Each old text must be there once,
// or the mutant no longer fits the code.
func (m mutant) apply(source string) (string, error) {
	for _, e := range m.edits {
		if n := strings.Count(source, e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times, instead of once:\n%s", m.file, n, e.old)
		}
		source = strings.Replace(source, e.old, e.new, 1)
	}
	return source, nil
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
	original, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	planted, err := m.apply(string(source))
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
	replaced := map[string]map[string]string{"Replace": {original: write("planted.go", []byte(planted))}}
	overlay, err := json.Marshal(replaced)
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
	m, err := parseMutant("# why\nfile a.go\nrun TestSim 1 9\n--- old\n\tx()\n--- new\n\ty()\n--- old\nz\n--- new\n\n")
	if err != nil || m.file != "a.go" || m.test != "TestSim" || m.first != "1" || m.seeds != "9" {
		t.Fatalf("%+v, %v", m, err)
	}
	if got, err := m.apply("\tx()\nz\n"); got != "\ty()\n\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, source := range []string{"\tx()\n\tx()\nz\n", "\tx()\n"} {
		if _, err := m.apply(source); err == nil {
			t.Errorf("fits %q", source)
		}
	}
}
