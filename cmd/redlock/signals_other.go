//go:build !unix

package main

import "os"

// endSignals end a process that does not catch them.
var endSignals = []os.Signal{os.Interrupt}
