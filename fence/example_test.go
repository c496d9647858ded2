package fence_test

import (
	"fmt"

	"example.com/redlock/fence"
)

// A resource keeps a Gate together with its data, and asks it before each
// operation.
func Example() {
	var gate fence.Gate
	open := func(c fence.Claim) {
		var err error
		gate, err = gate.Open(c)
		fmt.Printf("%v: %v\n", c, err)
	}
	first, second := fence.Claim{Token: 33}, fence.Claim{Token: 34}
	open(first)
	open(second)
	fmt.Println(gate.Check(first)) // who had been asleep
	// Output:
	// exclusive token 33: <nil>
	// exclusive token 34: <nil>
	// fence: exclusive token 33 is stale: the gate was opened with exclusive token 34
}
