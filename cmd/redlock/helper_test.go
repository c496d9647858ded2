//go:build linux

package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// runHelper is what the test binary does as a command under redlock.
func runHelper(kind string) {
	switch kind {
	case "beat":
		beat(os.Getenv("CLI_TEST_FILE"))
	case "until":
		fmt.Println(os.Getpid())
		for range time.Tick(time.Millisecond) {
			if _, err := os.Stat(os.Getenv("CLI_TEST_FILE")); err == nil {
				os.Exit(5)
			}
		}
	default:
		fmt.Fprintln(os.Stderr, "no such helper:", kind)
		os.Exit(2)
	}
}

// beat writes the time to a file every few milliseconds, and when TERM came,
// which it does not heed.
func beat(path string) {
	f, err := os.Create(path)
	if err != nil {
		panic(err)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Println(os.Getpid())
	for {
		select {
		case <-term:
			fmt.Fprintf(f, "term %d\n", time.Now().UnixNano())
		case <-time.After(2 * time.Millisecond):
			fmt.Fprintf(f, "beat %d\n", time.Now().UnixNano())
		}
	}
}
