package fence_test

import (
	"errors"
	"testing"

	"example.com/redlock/fence"
	"example.com/redlock/fence/internal/gatemodel"
)

func TestGate(t *testing.T) {
	exclusive := func(n fence.Token) fence.Claim { return fence.Claim{Token: n} }
	shared := func(n fence.Token) fence.Claim { return fence.Claim{Token: n, Shared: true} }
	for _, test := range []struct {
		name   string
		before []fence.Claim
		claim  fence.Claim
		seen   fence.Claim // zero: admitted
	}{
		{"first", nil, exclusive(1), fence.Claim{}},
		{"first reader", nil, shared(1), fence.Claim{}},
		{"the same holder again", []fence.Claim{exclusive(5)}, exclusive(5), fence.Claim{}},
		{"next", []fence.Claim{exclusive(5)}, exclusive(6), fence.Claim{}},
		{"late", []fence.Claim{exclusive(5)}, exclusive(4), exclusive(5)},
		{"reader of what was written", []fence.Claim{exclusive(5)}, shared(6), fence.Claim{}},
		{"reader with the writer's token", []fence.Claim{exclusive(5)}, shared(5), exclusive(5)},
		{"late reader", []fence.Claim{exclusive(5)}, shared(4), exclusive(5)},
		{"reader beside a newer reader", []fence.Claim{shared(6)}, shared(4), fence.Claim{}},
		{"writer after a reader", []fence.Claim{shared(6)}, exclusive(7), fence.Claim{}},
		{"writer with a reader's token", []fence.Claim{shared(6)}, exclusive(6), shared(6)},
		{"late writer", []fence.Claim{shared(6)}, exclusive(5), shared(6)},
		{"late writer, reader above the writer", []fence.Claim{exclusive(5), shared(6)}, exclusive(4), shared(6)},
		{"late writer, writer above the reader", []fence.Claim{shared(6), exclusive(7)}, exclusive(4), exclusive(7)},
		{"old writer whose successor reads", []fence.Claim{exclusive(5), shared(6)}, exclusive(5), shared(6)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var g fence.Gate
			for _, c := range test.before {
				var err error
				if g, err = g.Open(c); err != nil {
					t.Fatal(err)
				}
			}
			after, err := g.Open(test.claim)
			if test.seen == (fence.Claim{}) {
				if err != nil || after.Check(test.claim) != nil {
					t.Fatalf("refused: %v, then %v", err, after.Check(test.claim))
				}
				return
			}
			var stale *fence.StaleError
			if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) || stale.Claim != test.claim || stale.Seen != test.seen {
				t.Errorf("got %v, want seen %v", err, test.seen)
			}
			if after != g {
				t.Errorf("a refusal changed the gate from %v to %v", g, after)
			}
		})
	}
}

// TestGateThatForgot: what remembered the tokens was lost. Whoever had opened
// the gate before does not act without opening it again.
func TestGateThatForgot(t *testing.T) {
	for _, c := range []fence.Claim{{Token: 5}, {Token: 5, Shared: true}, {}, {Shared: true}} {
		if err := (fence.Gate{}).Check(c); !errors.Is(err, fence.ErrNotOpen) && !errors.Is(err, fence.ErrStale) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if err := (fence.Gate{Exclusive: 4}).Check(fence.Claim{Token: 5}); !errors.Is(err, fence.ErrNotOpen) {
		t.Error(err)
	}
}

func TestGateAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		var g fence.Gate
		var value string
		gatemodel.Run(t, seed, 2000, func(c fence.Claim) (*gatemodel.Opened, error) {
			after, err := g.Open(c)
			if err != nil {
				return nil, err
			}
			g = after
			o := &gatemodel.Opened{Read: func() (string, error) { return value, g.Check(c) }}
			if !c.Shared {
				o.Write = func(v string) error {
					if err := g.Check(c); err != nil {
						return err
					}
					value = v
					return nil
				}
			}
			return o, nil
		})
	}
}

func TestBadTokens(t *testing.T) {
	for _, n := range []fence.Token{0, fence.MaxToken + 1} {
		if _, err := (fence.Gate{}).Open(fence.Claim{Token: n}); !errors.Is(err, fence.ErrBadToken) {
			t.Errorf("%d: %v", n, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "+1", "01", " 1", "1 ", "0x10", "1e3", "9007199254740992", "99999999999999999999"} {
		if n, err := fence.ParseToken(s); !errors.Is(err, fence.ErrBadToken) {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
	if n, err := fence.ParseToken(fence.MaxToken.String()); n != fence.MaxToken || err != nil {
		t.Error(n, err)
	}
}

func TestStaleErrorSaysBothTokens(t *testing.T) {
	err := &fence.StaleError{Resource: "stock", Claim: fence.Claim{Token: 33}, Seen: fence.Claim{Token: 34, Shared: true}}
	const want = `fence: exclusive token 33 is stale for "stock": the gate was opened with shared token 34`
	if err.Error() != want {
		t.Error(err)
	}
}
