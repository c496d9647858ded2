package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// impureCode finds clocks, goroutines and channels in f.
func impureCode(f *file) (violations []string) {
	for _, u := range f.uses("time") {
		if !slices.Contains(pureTime, u.name) {
			violations = append(violations, u.at+": a pure package may not use time."+u.name+": time is an argument")
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "start a goroutine"
		case *ast.ChanType:
			what = "have a channel"
		case *ast.SelectStmt:
			what = "select"
		case *ast.SendStmt:
			what = "send on a channel"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				what = "receive from a channel"
			}
		}
		if what != "" {
			violations = append(violations, f.at(n)+": a pure package may not "+what)
		}
		return true
	})
	return violations
}

func TestImpureCodeIsFound(t *testing.T) {
	f := parse(t, "internal/core/a.go", `package core

import clock "time"

const short = 3 * clock.Second

func f(d clock.Duration) {
	clock.Sleep(d)
	_ = clock.Now()
	go f(d)
	var c chan int
	c <- 1
	<-c
	select {}
}
`)
	wantViolations(t, impureCode(f), "a.go:8: a pure package may not use time.Sleep", "time.Now",
		"start a goroutine", "have a channel", "send on", "receive from", "may not select")
}

// maxFunctionLines is what fits on a screen.
const maxFunctionLines = 70

func TestFunctionLength(t *testing.T) {
	for _, f := range nonTestFiles(t) {
		report(t, longFunctions(f))
	}
}

func longFunctions(f *file) (violations []string) {
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := f.line(fn.End()) - f.line(fn.Pos()) + 1; n > maxFunctionLines {
			violations = append(violations,
				fmt.Sprintf("%s: %s has %d lines, more than %d", f.at(fn), fn.Name.Name, n, maxFunctionLines))
		}
	}
	return violations
}

func TestLongFunctionIsFound(t *testing.T) {
	body := func(lines int) string { return strings.Repeat("\tx()\n", lines) }
	f := parse(t, "a.go", "package a\n\nfunc fits() {\n"+body(maxFunctionLines-2)+"}\n\n"+
		"func tooLong() {\n"+body(maxFunctionLines-1)+"}\n")
	wantViolations(t, longFunctions(f), "tooLong has 71 lines")
}

// sleepers may call time.Sleep in tests, because waiting is what they are for.
var sleepers = []string{"testkit/await"}

func TestNoSleepInTests(t *testing.T) {
	for _, f := range files(t, func(f *file) bool { return f.isTest() }) {
		report(t, sleeps(f))
	}
}

// sleeps finds time.Sleep in a test: a pause is either too short on a busy
// machine or too long on all others. Under testing/synctest time is not real
// and Sleep is how it passes.
func sleeps(f *file) (violations []string) {
	if slices.Contains(sleepers, f.pkg()) || slices.Contains(f.imports(), "testing/synctest") {
		return nil
	}
	for _, u := range f.uses("time") {
		if u.name == "Sleep" {
			violations = append(violations, u.at+": a test waits for a condition, it does not sleep")
		}
	}
	return violations
}

func TestSleepIsFound(t *testing.T) {
	const src = "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"
	wantViolations(t, sleeps(parse(t, "quorum/a_test.go", src)), "a_test.go:3: ")
	wantViolations(t, sleeps(parse(t, "testkit/await/a_test.go", src)))
	wantViolations(t, sleeps(parse(t, "quorum/b_test.go",
		"package a\nimport (\"time\"; \"testing/synctest\")\nfunc f() { time.Sleep(1) }\n")))
}
