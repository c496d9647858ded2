module example.com/redlock/cmd/redlock

go 1.26.0

require (
	example.com/redlock v0.0.0
	example.com/redlock/testkit v0.0.0
	github.com/creack/pty v1.1.24
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	go.uber.org/goleak v1.3.0
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/sys v0.47.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
)

replace (
	example.com/redlock => ../../
	example.com/redlock/testkit => ../../testkit
)
