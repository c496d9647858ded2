//go:build !race

package sim

const raceFactor = 1
