package clockshim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutACompilerTheErrorSaysSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := compile(); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("compile: %v", err)
	}
}

func TestACompilerThatFailsIsQuotedAndLeavesNothingBehind(t *testing.T) {
	bin, tmp := t.TempDir(), t.TempDir()
	const script = "#!/bin/sh\necho no such header\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "cc"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("TMPDIR", tmp)
	if _, err := compile(); err == nil || !strings.Contains(err.Error(), "no such header") {
		t.Errorf("compile: %v", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
