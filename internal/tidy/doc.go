// Package tidy holds the rules of this repository as tests: what may import
// what and why not, what is documented, how long a function may be. The rules
// themselves are in the test files; each has a test of its own in which it
// finds a planted violation.
package tidy
