package table

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"example.com/redlock/testkit/redisserver"
)

// machine is what a figure depends on besides the code.
type machine struct {
	cpu, system, server, commit string
	cores                       int
	loadBefore, loadAfter       string
	// modules are the versions of what is compared.
	modules []string
}

func thisMachine(ctx context.Context) (machine, error) {
	binary, err := redisserver.Find()
	if err != nil {
		return machine{}, fmt.Errorf("%w (`make bench` installs redis-server)", err)
	}
	version, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return machine{}, fmt.Errorf("%s --version: %w", binary, err)
	}
	m := machine{
		cpu: cpuModel(), cores: runtime.NumCPU(), system: runtime.GOOS + "/" + runtime.GOARCH,
		server: serverVersion(string(version)), commit: commit(ctx), loadBefore: loadAverage(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9", "github.com/redis/rueidis":
				m.modules = append(m.modules, strings.TrimPrefix(d.Path, "github.com/")+" "+d.Version)
			}
		}
	}
	return m, nil
}

// serverVersion shortens "Redis server v=7.0.15 sha=… malloc=… …".
func serverVersion(said string) string {
	fields := strings.Fields(said)
	for i, f := range fields {
		if v, ok := strings.CutPrefix(f, "v="); ok {
			return strings.ToLower(strings.Join(fields[:i], " ")) + " " + v
		}
	}
	return strings.TrimSpace(said)
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // elsewhere than on Linux it is not there
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// loadAverage is that of the last minute: what else kept the machine busy.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// commit names what was measured.
func commit(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(head))
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	if err != nil || len(strings.TrimSpace(string(changed))) > 0 {
		name += ", with changes"
	}
	return name
}
