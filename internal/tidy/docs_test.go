package tidy

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPackageDocs(t *testing.T) {
	for dir, list := range byPackage(nonTestFiles(t)) {
		report(t, packageDoc(dir, list))
	}
}

// packageDoc demands exactly one package comment, in the form godoc expects.
func packageDoc(dir string, list []*file) []string {
	var docs []*file
	for _, f := range list {
		if f.ast.Doc != nil {
			docs = append(docs, f)
		}
	}
	if len(docs) != 1 {
		return []string{dir + ": has " + plural(len(docs), "package comment") + ", want one"}
	}
	f := docs[0]
	want := "Package " + f.ast.Name.Name + " "
	if f.ast.Name.Name == "main" {
		want = "Command "
	}
	if !strings.HasPrefix(f.ast.Doc.Text(), want) {
		return []string{f.path + ": the package comment does not begin with " + strings.TrimSpace(want)}
	}
	return nil
}

func plural(n int, what string) string {
	switch n {
	case 0:
		return "no " + what
	case 1:
		return "one " + what
	}
	return "several " + what + "s"
}

func TestMissingPackageDocIsFound(t *testing.T) {
	with := parse(t, "a/a.go", "// Package a does.\npackage a\n")
	without := parse(t, "a/b.go", "package a\n")
	odd := parse(t, "a/c.go", "// This is a.\npackage a\n")
	wantViolations(t, packageDoc("a", []*file{with, without}))
	wantViolations(t, packageDoc("a", []*file{without}), "no package comment")
	wantViolations(t, packageDoc("a", []*file{with, odd}), "several package comments")
	wantViolations(t, packageDoc("a", []*file{odd}), "does not begin with Package a")
}

func TestExportedIdentifiersAreDocumented(t *testing.T) {
	for _, f := range nonTestFiles(t) {
		report(t, undocumented(f))
	}
}

// undocumented finds exported declarations without a comment. A comment on a
// group counts for all in it. Error and String say what they are by name.
func undocumented(f *file) (violations []string) {
	missing := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		for _, d := range docs {
			if d != nil {
				return
			}
		}
		if name.IsExported() {
			violations = append(violations, f.at(name)+": "+name.Name+" has no comment")
		}
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			wellKnown := d.Recv != nil && (d.Name.Name == "Error" || d.Name.Name == "String")
			if !wellKnown && exportedReceiver(d) {
				missing(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					missing(s.Name, d.Doc, s.Doc, s.Comment)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						missing(name, d.Doc, s.Doc, s.Comment)
					}
				}
			}
		}
	}
	return violations
}

// exportedReceiver reports whether d is a function, or a method that godoc
// shows.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	name, ok := typ.(*ast.Ident)
	return !ok || name.IsExported()
}

func TestUndocumentedIsFound(t *testing.T) {
	f := parse(t, "a.go", `package a

type T struct{}

// U is.
type U struct{}

func F() {}

func (U) M() {}

func (U) String() string { return "" }

type hidden struct{}

func (hidden) M() {}

// The limits.
const (
	A = 1
	B = 2
)

var V, w = 1, 2
`)
	wantViolations(t, undocumented(f), "a.go:3: T ", "F has", "M has", "V has")
}

func TestPublicPackagesHaveExamples(t *testing.T) {
	packages := byPackage(goFiles(t))
	for dir, list := range packages {
		if isPublic(list) && !hasExample(list) {
			t.Errorf("%s: a public package has an Example", dir)
		}
	}
}

// isPublic reports whether the package is there for others to import. testkit
// is not: it serves the tests of this repository.
func isPublic(list []*file) bool {
	for _, f := range list {
		if !f.isTest() {
			return f.ast.Name.Name != "main" && !strings.Contains("/"+f.path, "/internal/") &&
				!strings.HasPrefix(f.path, "testkit/")
		}
	}
	return false
}

func hasExample(list []*file) bool {
	for _, f := range list {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && f.isTest() && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Example") {
				return true
			}
		}
	}
	return false
}

func TestMissingExampleIsFound(t *testing.T) {
	lib := parse(t, "a/a.go", "package a\nfunc ExampleNot() {}\n")
	example := parse(t, "a/a_test.go", "package a_test\nfunc Example_use() {}\n")
	if !isPublic([]*file{lib}) || isPublic([]*file{parse(t, "internal/a/a.go", "package a")}) ||
		isPublic([]*file{parse(t, "cmd/a.go", "package main")}) {
		t.Error("isPublic is wrong")
	}
	if hasExample([]*file{lib}) || !hasExample([]*file{lib, example}) {
		t.Error("hasExample is wrong")
	}
}

// TestSentinelsAreExplained keeps docs/errors.md complete.
func TestSentinelsAreExplained(t *testing.T) {
	table, err := os.ReadFile(filepath.Join(root, "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files(t, func(f *file) bool { return f.path == "errors.go" }) {
		report(t, unexplained(f, string(table)))
	}
}

func unexplained(f *file, table string) (violations []string) {
	for _, d := range f.ast.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.VAR {
			continue
		}
		for _, s := range group.Specs {
			name := s.(*ast.ValueSpec).Names[0].Name
			if strings.HasPrefix(name, "Err") && !strings.Contains(table, "\n| `"+name+"` |") {
				violations = append(violations, f.path+": docs/errors.md has no row for "+name)
			}
		}
	}
	return violations
}

func TestUnexplainedSentinelIsFound(t *testing.T) {
	f := parse(t, "errors.go", "package a\nvar (\n\tErrOne = 1\n\tErrTwo = 2\n)\n")
	wantViolations(t, unexplained(f, "| |\n| `ErrOne` | |\n"), "ErrTwo")
}
