module example.com/redlock/interop

go 1.26.0

require (
	example.com/redlock v0.0.0
	example.com/redlock/testkit v0.0.0
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/redis/go-redis/v9 v9.23.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.48.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)

replace (
	example.com/redlock => ../
	example.com/redlock/testkit => ../testkit
)
