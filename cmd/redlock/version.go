package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionLine is what version prints with --json.
type versionLine struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.emit(versionLine{version(), runtime.Version()})
			}
			_, err := fmt.Fprintln(a.out, "redlock", version())
			return err
		},
	}
}

// version is what the build recorded: a tag, or a commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
