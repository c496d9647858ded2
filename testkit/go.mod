module example.com/redlock/testkit

go 1.26.0

require example.com/redlock v0.0.0

replace example.com/redlock => ../
