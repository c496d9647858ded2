// Package gatemodel is a second, dumb implementation of the rule of a gate, and
// random histories to compare a gate with it.
package gatemodel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"example.com/redlock/fence"
)

// Opened is an opened gate under test, around one string.
type Opened struct {
	Read  func() (string, error)
	Write func(string) error // nil if shared
}

// model remembers every claim that was admitted, and asks all of them.
type model struct {
	admitted []fence.Claim
	value    string
}

func (m *model) stale(c fence.Claim) bool {
	for _, a := range m.admitted {
		switch {
		case c.Shared && a.Shared: // readers do not keep each other out
		case c.Shared && a.Token >= c.Token:
			return true
		case !c.Shared && a.Token > c.Token:
			return true
		case !c.Shared && a.Shared && a.Token == c.Token:
			return true
		}
	}
	return false
}

// Run opens, reads and writes at random, steps times, and fails t where the
// gate behind open answers otherwise than the model. The resource holds "" at
// first. Every answer must have occurred.
func Run(t *testing.T, seed uint64, steps int, open func(fence.Claim) (*Opened, error)) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	var m model
	var claims []fence.Claim
	var opened []*Opened
	seen := make(map[string]int)
	for i := range steps {
		at := fmt.Sprintf("seed %d step %d: ", seed, i)
		if len(opened) == 0 || r.IntN(3) == 0 {
			// Tokens grow in the long run; equal ones and late ones are common.
			c := fence.Claim{Token: fence.Token(1 + i/4 + r.IntN(6)), Shared: r.IntN(2) == 0}
			o, err := open(c)
			verdict(t, seen, at+"open", "open", c, err, m.stale(c))
			if err == nil {
				m.admitted = append(m.admitted, c)
				claims, opened = append(claims, c), append(opened, o)
			}
			continue
		}
		// Old ones are asked too, recent ones more.
		k := len(opened) - 1
		if r.IntN(2) == 0 {
			k = r.IntN(len(opened))
		}
		c, o := claims[k], opened[k]
		if o.Write != nil && r.IntN(2) == 0 {
			value := strconv.Itoa(i)
			err := o.Write(value)
			verdict(t, seen, at+"write", "write", c, err, m.stale(c))
			if err == nil {
				m.value = value
			}
			continue
		}
		value, err := o.Read()
		verdict(t, seen, at+"read", "read", c, err, m.stale(c))
		if err == nil && value != m.value {
			t.Fatalf("%sread %q, want %q", at, value, m.value)
		}
	}
	wantAll(t, seen)
}

func verdict(t *testing.T, seen map[string]int, at, what string, c fence.Claim, err error, stale bool) {
	t.Helper()
	if err != nil && !errors.Is(err, fence.ErrStale) {
		t.Fatalf("%s with %v: %v", at, c, err)
	}
	if (err != nil) != stale {
		t.Fatalf("%s with %v: error %v, and stale in the model: %v", at, c, err, stale)
	}
	seen[fmt.Sprintf("%s shared=%v stale=%v", what, c.Shared, stale)]++
}

func wantAll(t *testing.T, seen map[string]int) {
	t.Helper()
	t.Logf("answers: %v", seen)
	for _, what := range []string{"open shared=false", "open shared=true", "read shared=false", "read shared=true", "write shared=false"} {
		for _, stale := range []bool{false, true} {
			if key := fmt.Sprintf("%s stale=%v", what, stale); seen[key] == 0 {
				t.Errorf("never happened: %s", key)
			}
		}
	}
}
