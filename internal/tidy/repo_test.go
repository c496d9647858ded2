package tidy

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// root is the repository, seen from this package.
const root = "../.."

// file is one file of the repository. Path is relative to root, with slashes.
type file struct {
	path string
	text string
	ast  *ast.File // of Go files
}

func (f *file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// pkg is the package that f is in, by its folder relative to the root.
func (f *file) pkg() string { return path.Dir(f.path) }

// imports lists what f imports.
func (f *file) imports() []string {
	var list []string
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		list = append(list, p)
	}
	return list
}

// uses lists, in order of appearance, the exported names that f uses of the
// package at importPath.
func (f *file) uses(importPath string) []use {
	local := ""
	for _, i := range f.ast.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); p == importPath {
			local = path.Base(p)
			if i.Name != nil {
				local = i.Name.Name
			}
		}
	}
	var list []use
	if local == "" {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
			list = append(list, use{sel.Sel.Name, f.at(sel)})
		}
		return true
	})
	return list
}

type use struct{ name, at string }

// at says where n is.
func (f *file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.line(n.Pos()))
}

func (f *file) line(p token.Pos) int {
	return 1 + strings.Count(f.text[:int(p-f.ast.FileStart)], "\n")
}

// parse makes a file of a source in memory.
func parse(t *testing.T, name, src string) *file {
	t.Helper()
	f, err := newFile(name, src)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newFile(name, src string) (*file, error) {
	f := &file{path: name, text: src}
	if !strings.HasSuffix(name, ".go") {
		return f, nil
	}
	var err error
	f.ast, err = parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
	return f, err
}

// tree reads the repository once.
var tree = sync.OnceValues(readTree)

func readTree() ([]*file, error) {
	var files []*file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if d.IsDir() {
			if name == ".git" || name == "bin" || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !isSource(name) {
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := newFile(name, string(b))
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// isSource tells which files the rules look at.
func isSource(name string) bool {
	switch path.Ext(name) {
	case ".go", ".lua", ".sh":
		return true
	}
	return name == ".ci/run"
}

// files returns the files of the repository that keep is true for.
func files(t *testing.T, keep func(*file) bool) []*file {
	t.Helper()
	all, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	var list []*file
	for _, f := range all {
		if keep(f) {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		t.Fatal("found no file to look at")
	}
	return list
}

func goFiles(t *testing.T) []*file {
	t.Helper()
	return files(t, func(f *file) bool { return f.ast != nil })
}

func nonTestFiles(t *testing.T) []*file {
	t.Helper()
	return files(t, func(f *file) bool { return f.ast != nil && !f.isTest() })
}

// byPackage groups files by folder.
func byPackage(list []*file) map[string][]*file {
	m := make(map[string][]*file)
	for _, f := range list {
		m[f.pkg()] = append(m[f.pkg()], f)
	}
	return m
}

// modulePath reads the module path of the root module, which `make rename`
// changes.
func modulePath(t *testing.T) string {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if p, ok := strings.CutPrefix(s.Text(), "module "); ok {
			return p
		}
	}
	t.Fatal("go.mod has no module line")
	return ""
}

// report fails t with every violation.
func report(t *testing.T, violations []string) {
	t.Helper()
	sort.Strings(violations)
	for _, v := range violations {
		t.Error(v)
	}
}

// wantViolations demands that a rule finds as many violations as planted, and
// that each of says is part of one of them.
func wantViolations(t *testing.T, got []string, says ...string) {
	t.Helper()
	if len(got) != len(says) {
		t.Errorf("found %d violations, want %d: %q", len(got), len(says), got)
	}
	all := strings.Join(got, "\n")
	for _, s := range says {
		if !strings.Contains(all, s) {
			t.Errorf("no violation says %q: %q", s, got)
		}
	}
}
