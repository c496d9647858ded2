// Command redlock runs commands under a distributed lock that is kept by a
// majority of independent Redis servers. See README.md beside this file.
package main

import "os"

func main() {
	a := &app{
		out:         os.Stdout,
		err:         os.Stderr,
		in:          os.Stdin,
		env:         os.Environ(),
		configPaths: []string{"redlock.yaml", "/etc/redlock.yaml"},
	}
	os.Exit(a.main(os.Args[1:]))
}
