//go:build !race

package explore

const slow = false
