package tidy

import (
	"slices"
	"strings"
	"testing"
)

// mayImport says which packages of the project each package may import, by
// folder: imports point one way. Tests may import more. An entry that ends in
// "/..." stands for everything below.
var mayImport = map[string][]string{
	"fence":                    {},
	"fence/internal/turn":      {"fence"},
	"fence/internal/gatemodel": {"fence"},
	"fence/memgate":            {"fence", "fence/internal/turn"},
	"fence/httpgate":           {"fence", "fence/internal/turn"},
	"fence/sqlgate":            {"fence"},
	"fence/redisgate":          {"fence"},
	"fence/filegate":           {"fence"},
	"backend":                  {"fence"},
	"backend/backendtest":      {"backend", "fence"},
	"internal/core":            {"fence"},
	"internal/node":            {"fence"},
	"internal/answer":          {"internal/core", "internal/node"},
	"internal/nodemodel":       {"fence", "internal/node"},
	"internal/monotime":        {"internal/core"},
	"internal/tidy":            {},
	"internal/rename":          {},
	"quorum":                   {"fence", "backend", "internal/core", "internal/node", "internal/answer", "internal/monotime"},
	"redisnode":                {"fence", "internal/node"},
	"memnode":                  {"fence", "internal/node", "internal/nodemodel", "internal/core"},
	"internal/explore":         {"internal/node", "internal/nodemodel", "internal/core", "internal/answer"},
	"internal/mutant":          {},
	"internal/sim":             {"fence", "internal/node", "internal/nodemodel", "internal/core", "internal/answer"},
	".":                        {"fence", "backend", "quorum", "redisnode"},
	"locktest":                 {".", "backend", "quorum", "memnode", "fence"},

	// Modules of their own stand on what is public.
	"testkit/...":     append([]string{"testkit/..."}, public...),
	"cmd/redlock/...": append([]string{"cmd/redlock/...", "testkit/..."}, public...),
	"bench/...":       append([]string{"bench/...", "testkit/..."}, public...),
}

// public are the packages of the root module that anybody may import.
var public = []string{
	".", "fence", "fence/memgate", "fence/httpgate", "fence/sqlgate", "fence/redisgate", "fence/filegate",
	"backend", "backend/backendtest", "quorum", "redisnode", "memnode", "locktest",
}

func TestImportDirections(t *testing.T) {
	module := modulePath(t)
	report(t, importDirections(module, nonTestFiles(t)))
	for dir := range mayImport {
		if !strings.HasSuffix(dir, "/...") && len(byPackage(nonTestFiles(t))[dir]) == 0 {
			t.Errorf("mayImport has the package %s, which does not exist", dir)
		}
	}
}

func importDirections(module string, list []*file) (violations []string) {
	for _, f := range list {
		allowed, ok := lookup(f.pkg())
		if !ok {
			violations = append(violations, f.path+": its package is not in mayImport: say there what it may import")
			continue
		}
		for _, p := range f.imports() {
			dir, ours := within(module, p)
			if ours && !slices.ContainsFunc(allowed, func(a string) bool { return matches(a, dir) }) {
				violations = append(violations, f.path+": "+f.pkg()+" may not import "+dir)
			}
			// One file decides which nodes a URL stands for; the rest of the
			// API works with any backend.
			if ours && dir == "redisnode" && f.pkg() == "." && f.path != "open.go" {
				violations = append(violations, f.path+": only open.go may import redisnode")
			}
		}
	}
	return violations
}

func lookup(dir string) ([]string, bool) {
	if allowed, ok := mayImport[dir]; ok {
		return allowed, true
	}
	for pattern, allowed := range mayImport {
		if matches(pattern, dir) {
			return allowed, true
		}
	}
	return nil, false
}

// matches reports whether dir is what pattern stands for.
func matches(pattern, dir string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == base || strings.HasPrefix(dir, base+"/")
	}
	return dir == pattern
}

// within returns the folder of an import path of the project.
func within(module, importPath string) (dir string, ours bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// pure are the packages that decide and never do.
var pure = []string{"internal/core", "internal/node", "internal/answer", "internal/nodemodel"}

// impure says why a pure package may not import a package, or anything below
// it.
var impure = map[string]string{
	"context":      "waiting and giving up belong to the caller: a decision takes no time",
	"crypto/rand":  "random numbers are arguments, or a run cannot be repeated from its seed",
	"embed":        "what decides is Go code, not a file",
	"expvar":       "counting is for whoever carries out the effects",
	"flag":         "the environment is not an argument",
	"hash/maphash": "its seed differs from run to run",
	"io":           "effects are return values",
	"log":          "wording would become behaviour; effects say what happened",
	"math/rand":    "random numbers are arguments, or a run cannot be repeated from its seed",
	"net":          "effects are return values",
	"os":           "the environment is not an argument",
	"plugin":       "code that is loaded at run time cannot be checked",
	"reflect":      "plain values need none",
	"runtime":      "the scheduler is not an argument",
	"sync":         "one goroutine at a time owns a machine; the shell sees to that",
	"syscall":      "effects are return values",
	"testing":      "not in code that users run",
	"unsafe":       "plain values need none",
}

// pureTime is what a pure package may use of package time: lengths, no clock.
var pureTime = []string{
	"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour",
}

func TestPurePackages(t *testing.T) {
	report(t, impurities(modulePath(t), nonTestFiles(t), pure))
}

// impurities checks the packages in dirs and every package of the project that
// they import, directly or not.
func impurities(module string, list []*file, dirs []string) (violations []string) {
	packages := byPackage(list)
	seen := make(map[string]bool)
	var visit func(dir string)
	visit = func(dir string) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		for _, f := range packages[dir] {
			for _, p := range f.imports() {
				if sub, ours := within(module, p); ours {
					visit(sub)
				} else if reason := whyImpure(p); reason != "" {
					violations = append(violations, f.path+": a pure package may not import "+p+": "+reason)
				}
			}
			violations = append(violations, impureCode(f)...)
		}
	}
	for _, dir := range dirs {
		visit(dir)
	}
	return violations
}

// whyImpure returns the reason against importing p, or "".
func whyImpure(p string) string {
	for banned, reason := range impure {
		if matches(banned+"/...", p) {
			return reason
		}
	}
	if strings.Contains(strings.Split(p, "/")[0], ".") {
		return "nothing but the standard library and the project itself can be relied on to stay pure"
	}
	return ""
}

func TestImportRulesFindPlantedViolations(t *testing.T) {
	planted := []*file{
		parse(t, "internal/core/a.go", `package core
import ("context"; "log/slog"; "math/rand/v2"; "slices"; "example.org/m/fence"; "github.com/a/b")
`),
		parse(t, "fence/b.go", `package fence
import "os"
`),
		parse(t, "lease.go", `package redlock
import "example.org/m/redisnode"
`),
		parse(t, "open.go", `package redlock
import "example.org/m/redisnode"
`),
		parse(t, "redisnode/c.go", `package redisnode
import "example.org/m/quorum"
`),
		parse(t, "testkit/deep/d.go", `package deep
import ("example.org/m/testkit/await"; "example.org/m/cmd/redlock/flags")
`),
		parse(t, "unheardof/e.go", `package unheardof`),
	}
	wantViolations(t, importDirections("example.org/m", planted),
		"lease.go: only open.go", "redisnode may not import quorum",
		"testkit/deep may not import cmd/redlock/flags", "unheardof/e.go: its package is not in mayImport")
	wantViolations(t, impurities("example.org/m", planted, []string{"internal/core"}),
		"import context: ", "import log/slog: ", "import math/rand/v2: ", "import github.com/a/b: ",
		"fence/b.go: a pure package may not import os: ")
}
