module example.com/redlock/testkit

go 1.26.0

require (
	example.com/redlock v0.0.0
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/redis/rueidis v1.0.79
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.47.0
)

require github.com/yuin/gopher-lua v1.1.1 // indirect

replace example.com/redlock => ../
