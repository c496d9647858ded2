module example.com/redlock

go 1.26.0

require github.com/redis/rueidis v1.0.79

require golang.org/x/sys v0.47.0

require (
	github.com/anishathalye/porcupine v1.3.1
	go.uber.org/goleak v1.3.0
)
