package redlock_test

import "os"

// soak tells that the long forms of the tests are to run: `make soak`.
func soak() bool { return os.Getenv("REDLOCK_SOAK") == "1" }
