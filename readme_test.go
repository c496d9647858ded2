package redlock_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeExampleCompiles: the Go example of the README is the one in
// example_test.go, which compiles.
func TestReadmeExampleCompiles(t *testing.T) {
	read := func(file string) string {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	between := func(text, begin, end string) string {
		_, rest, ok := strings.Cut(text, begin)
		inside, _, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("no text between %q and %q", begin, end)
		}
		return inside
	}
	compiled := between(read("example_test.go"), "\t\t// README begin\n", "\t\t// README end\n")
	compiled = strings.TrimPrefix(strings.ReplaceAll(compiled, "\n\t\t", "\n"), "\t\t")
	if shown := between(read("README.md"), "```go\n", "```\n"); shown != compiled {
		t.Errorf("the README shows\n%s\nbut what compiles is\n%s", shown, compiled)
	}
}
