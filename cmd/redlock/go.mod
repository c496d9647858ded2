module example.com/redlock/cmd/redlock

go 1.26.0

require (
	example.com/redlock v0.0.0
	example.com/redlock/testkit v0.0.0
)

replace (
	example.com/redlock => ../../
	example.com/redlock/testkit => ../../testkit
)
