//go:build !unix

package main

import "io"

// foregroundColumns is 0: no status is shown on this system.
func foregroundColumns(io.Writer) int { return 0 }
