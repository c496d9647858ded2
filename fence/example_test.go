package fence_test

import (
	"fmt"

	"example.com/redlock/fence"
)

// A resource remembers the highest token that it has seen, together with its
// data, and refuses whoever comes with a smaller one.
func Example() {
	var highest fence.Token
	write := func(t fence.Token) bool {
		if t < highest {
			return false
		}
		highest = t
		return true
	}
	fmt.Println("first holder:", write(33))
	fmt.Println("second holder:", write(34))
	fmt.Println("first holder, who had been asleep:", write(33))
	// Output:
	// first holder: true
	// second holder: true
	// first holder, who had been asleep: false
}
