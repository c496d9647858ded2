// Command rename sets the module path of the repository: in go.mod files,
// imports, documentation and scripts. `make rename MODULE=…` runs it in the
// root of the repository.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	to := flag.String("module", "", "the new module path")
	flag.Parse()
	changed, err := rename(".", *to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
	fmt.Printf("%d files changed\n", changed)
}

// modulePath is stricter than Go's own check: its first element is a host.
var modulePath = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

// rename changes the module path of the tree below dir and returns how many
// files it wrote. It writes nothing if it cannot read or format all of them.
func rename(dir, to string) (int, error) {
	if !modulePath.MatchString(to) {
		return 0, fmt.Errorf("%q is no module path; it looks like github.com/you/redlock", to)
	}
	from, err := currentPath(dir)
	if err != nil {
		return 0, err
	}
	// The path as a whole word: example.org/a is not in example.org/abc, nor in
	// my.example.org/a, but it is in https://example.org/a.
	old := regexp.MustCompile(`(^|[^A-Za-z0-9._~-])` + regexp.QuoteMeta(from) + `($|[^A-Za-z0-9_~-])`)
	rewritten := make(map[string][]byte)
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			return err // a file with a zero byte is no text
		}
		changed, err := replace(name, text, old, to)
		if err == nil && !bytes.Equal(changed, text) {
			rewritten[name] = changed
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	for name, text := range rewritten {
		info, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		if err := os.WriteFile(name, text, info.Mode().Perm()); err != nil {
			return 0, err
		}
	}
	return len(rewritten), nil
}

// currentPath reads the module path from the go.mod in dir.
func currentPath(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if p, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(p), nil
		}
	}
	return "", errors.New("go.mod has no module line")
}

func replace(name string, text []byte, old *regexp.Regexp, to string) ([]byte, error) {
	replacement := []byte("${1}" + to + "${2}")
	// Neighbours share the character between them, so one pass may leave every
	// second one.
	changed := old.ReplaceAll(old.ReplaceAll(text, replacement), replacement)
	if filepath.Ext(name) != ".go" || bytes.Equal(changed, text) {
		return changed, nil
	}
	// Imports are sorted by path, and the path is another one now.
	formatted, err := format.Source(changed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return formatted, nil
}
