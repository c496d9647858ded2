package backendtest_test

import (
	"testing"

	"example.com/redlock/backend"
	"example.com/redlock/backend/backendtest"
)

// service is a coordination service that is being tested.
type service struct{}

func start(*testing.T) *service                  { return &service{} }
func (*service) dial(*testing.T) backend.Backend { return nil }

func ExampleRun() {
	// The body of TestConformance in the backend's package:
	_ = func(t *testing.T) {
		s := start(t)
		backendtest.Run(t, backendtest.Harness{Open: s.dial})
	}
}
