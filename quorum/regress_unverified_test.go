package quorum

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// unseeing is a node whose user may not run CONFIG GET.
type unseeing struct{ Node }

func (u unseeing) Examine(ctx context.Context, e node.Exam) (node.ExamReply, error) {
	reply, err := u.Node.Examine(ctx, e)
	reply.Config = nil
	return reply, err
}

// A durable node restarts, and the first client that meets it may not look whether it
// is durable. That is this client's trouble: the node does not vote for it, and says
// why; the next client, who may look, does not have to wait, and then nobody has.
func TestADurableNodeMetByAClientThatMayNotLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memnode.New("a")
		m.Durable(true)
		open := func(n Node) *Backend {
			b, err := New([]Node{n}, &Config{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		seeing, blind := open(m.Client()), open(unseeing{m.Client()})
		if s := seeing.Init(t.Context(), backend.InitOptions{Durable: true})[0]; !s.Durable {
			t.Fatalf("%+v", s)
		}
		m.Restart(true)
		_, err := blind.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, Wait: time.Second})
		var u *backend.UnfitError
		if !errors.As(err, &u) || u.Reason != backend.UnfitPermission {
			t.Errorf("who may not look is told %v", err)
		}
		findings, _ := blind.Doctor(t.Context())
		if f := findingOf(findings, "quarantine"); f.Severity != backend.SeverityFailure || f.Remedy != lookAtDurable {
			t.Errorf("doctor: %+v", f)
		}
		begun := time.Now()
		_ = mustTake(t, seeing, "x", "").Release(t.Context())
		time.Sleep(refusalPause)
		_ = mustTake(t, blind, "x", "").Release(t.Context())
		if took := time.Since(begun); took > refusalPause {
			t.Errorf("it took %v", took)
		}
		_ = seeing.Close(t.Context())
		_ = blind.Close(t.Context())
	})
}

func findingOf(findings []backend.Finding, check string) (found backend.Finding) {
	for _, f := range findings {
		if f.Check == check {
			found = f
		}
	}
	return found
}
