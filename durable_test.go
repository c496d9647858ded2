package redlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock"
	"example.com/redlock/locktest"
)

// TestF03DurableNodes: a restart costs a durable node nothing, as long as it is
// seen to be one, and has its data.
func TestF03DurableNodes(t *testing.T) {
	for name, test := range map[string]struct {
		restart func(s *locktest.Service)
		votes   bool // at once
	}{
		"with its data":        {func(s *locktest.Service) { s.Nodes[0].Restart(true) }, true},
		"without":              {func(s *locktest.Service) { s.Nodes[0].Restart(false) }, false},
		"flushed":              {func(s *locktest.Service) { s.Nodes[0].Wipe() }, false},
		"promoted":             {func(s *locktest.Service) { s.Nodes[0].Promote() }, false},
		"durable no more":      {func(s *locktest.Service) { s.Nodes[0].Durable(false); s.Nodes[0].Restart(true) }, false},
		"restarted in between": {func(s *locktest.Service) { s.Nodes[0].Restart(true); s.Nodes[0].Restart(true) }, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			lk, s := locktest.New(t, 1, nil)
			if _, err := lk.Init(t.Context(), &redlock.InitOptions{Durable: true}); !errors.Is(err, redlock.ErrUnfit) {
				t.Errorf("%s: a node without a disk is durable: %v", name, err)
			}
			s.Nodes[0].Durable(true)
			if states, err := lk.Init(t.Context(), &redlock.InitOptions{Durable: true}); err != nil || !states[0].Durable {
				t.Fatalf("%s: %+v, %v", name, states, err)
			}
			held := acquire(t, lk, "held", nil)
			test.restart(s)
			began := time.Now()
			free(t, acquire(t, lk, "x", nil))
			if took := time.Since(began); (took < time.Second) != test.votes {
				t.Errorf("%s: voted after %v", name, took)
			}
			if test.votes {
				_, err := lk.TryAcquire(t.Context(), "held", nil)
				if !errors.Is(err, redlock.ErrHeld) || held.Context().Err() != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

func TestForgetfulNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, s := locktest.New(t, 1, nil)
		s.Nodes[0].Durable(true)
		for _, o := range []redlock.InitOptions{{Durable: true}, {Forgetful: true}} {
			if states, err := lk.Init(t.Context(), &o); err != nil || states[0].Durable != o.Durable {
				t.Fatalf("%+v: %+v, %v", o, states, err)
			}
		}
		s.Nodes[0].Restart(true)
		began := time.Now()
		free(t, acquire(t, lk, "x", nil))
		if took := time.Since(began); took < 45*time.Second {
			t.Errorf("voted after %v", took)
		}
	})
}
