package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/memnode"
)

// mustTake takes a name that is free on all nodes, for a minute's work.
func mustTake(t *testing.T, b *Backend, name, owner string) backend.Lease {
	t.Helper()
	l, err := b.Acquire(t.Context(), backend.Request{Name: name, Owner: owner, TTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // on all nodes
	return l
}

// mustList lists what has names, which are compared.
func mustList(t *testing.T, b *Backend, pattern string, names ...string) []backend.Status {
	t.Helper()
	list, err := b.List(t.Context(), pattern)
	if err != nil {
		t.Fatal(err)
	}
	wantNames(t, list, names...)
	return list
}

func wantNames(t *testing.T, list []backend.Status, names ...string) {
	t.Helper()
	var got []string
	for _, s := range list {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, names) {
		t.Fatalf("listed %q, want %q", got, names)
	}
}

func TestListSaysWhatInspectSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Bubbles begin in 2000, which no token of ours can mean.
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)))
		b, ms := three(t, nil)
		took := time.Now()
		l := mustTake(t, b, "lease", "me")
		value, _, _ := ms[0].Get("redlock:{lease}")
		ms[0].Set("redlock:{persisted}", value, 0)
		ms[1].Set("redlock:{persisted}", value, 0)
		ms[2].Set("redlock:{partial}", value, 20*time.Second)
		for _, m := range ms {
			m.Set("redlock:{foreign}", "not ours", 0)
			m.Set("redlock:{old}", strings.Split(value, ":")[0]+":17", 10*time.Second)
			m.Set("redlock:{ahead}", fmt.Sprintf("%.32s:%d", value, took.Add(2*time.Minute).UnixMicro()), 10*time.Second)
			m.Set("redlock:other", "no lock", 0)
			m.Set("redlock:{}", value, 0)
			m.Set("redlock:{redlock:x}", value, 0)
		}
		time.Sleep(5 * time.Second)
		list := mustList(t, b, "", "ahead", "foreign", "lease", "old", "partial", "persisted")
		want := []backend.Status{
			{Held: true, Remaining: 5 * time.Second, Token: list[0].Token},
			{Held: true, Foreign: true, NoTTL: true, Remaining: -1},
			{Held: true, Owner: "me", Token: l.Token(), Since: took, Remaining: 25 * time.Second},
			{Held: true, Token: 17, Remaining: 5 * time.Second},
			{Partial: true, Owner: "me", Token: l.Token(), Since: took},
			{Held: true, Owner: "me", Token: l.Token(), Since: took, Remaining: -1, NoTTL: true},
		}
		for i, got := range list {
			if len(got.Votes) != 3 {
				t.Errorf("%q: votes %v", got.Name, got.Votes)
			}
			seen, err := b.Inspect(t.Context(), got.Name)
			if err != nil || fmt.Sprint(seen) != fmt.Sprint(got) {
				t.Errorf("inspect %+v, %v\n   list %+v", seen, err, got)
			}
			// Proposals are in whole microseconds.
			if got.Since.Truncate(time.Millisecond).Equal(want[i].Since.Truncate(time.Millisecond)) {
				got.Since = want[i].Since
			}
			got.Votes, want[i].Name = nil, got.Name
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want[i]) {
				t.Errorf(" got %+v\nwant %+v", got, want[i])
			}
		}
		mustList(t, b, "?a*", "partial")
		_ = l.Release(t.Context())
		_ = b.Close(t.Context())
	})
}

// An application's own keys are no locks.
func TestListOfPlainKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, &Config{PlainKeys: true})
		l := mustTake(t, b, "lease", "")
		value, _, _ := ms[0].Get("lease")
		for _, m := range ms {
			m.Set("settings", "of the application", 0)
			m.Set("like a lease", value[:34]+"nonsense", 0)
			m.Set("redlock:{x}", value, 0)
		}
		ms[0].Set("stray*", value, 0)
		mustList(t, b, "*", "lease", "stray*")
		mustList(t, b, `*\*`, "stray*")
		_ = l.Release(t.Context())
		_ = b.Close(t.Context())
	})
}

// listSpy counts what a node is asked.
type listSpy struct {
	Node
	pages, calls, hellos *int
	most                 *int
}

func (s listSpy) Scan(ctx context.Context, p node.Scan) (node.ScanReply, error) {
	*s.pages++
	*s.most = max(*s.most, p.Count)
	r, err := s.Node.Scan(ctx, p)
	r.Names = append(r.Names, r.Names...) // as a server may
	return r, err
}

func (s listSpy) Call(ctx context.Context, c *node.Call) (*node.Reply, error) {
	*s.calls++
	*s.most = max(*s.most, len(c.Ops))
	return s.Node.Call(ctx, c)
}

func (s listSpy) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	*s.hellos++
	return s.Node.Hello(ctx, h)
}

// TestListInPages: a node is never asked much at once, and to look at it does not
// declare it.
func TestListInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memnode.New("a")
		var pages, calls, hellos, most int
		b, err := New([]Node{listSpy{m.Client(), &pages, &calls, &hellos, &most}}, &Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		const leases, others = 200, 5000
		for i := range leases {
			m.Set(fmt.Sprintf("redlock:{%d}", i), strings.Repeat("a", 32)+":1", time.Minute)
		}
		for i := range others {
			m.Set(fmt.Sprint("other", i), "", 0)
		}
		list, err := b.List(t.Context(), "*")
		if err != nil || len(list) != leases {
			t.Fatalf("%d names, %v", len(list), err)
		}
		if pages < others/scanCount || calls < leases/lookBatch || most > scanCount || hellos != 0 {
			t.Errorf("%d pages, %d calls, at most %d at once, %d greetings", pages, calls, most, hellos)
		}
		if guard, _, ok := m.Get("redlock:node"); ok {
			t.Errorf("the node was declared: %s", guard)
		}
		_ = b.Close(t.Context())
	})
}

// TestListWithoutSomeNodes: a minority that does not answer is in the votes, and
// costs its timeout once. Without a quorum what is known comes with the error.
func TestListWithoutSomeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		for i := range 3 * lookBatch {
			for _, m := range ms {
				m.Set(fmt.Sprintf("redlock:{%03d}", i), strings.Repeat("a", 32)+":1", time.Minute)
			}
		}
		ms[1].Freeze()
		begin := time.Now()
		list, err := b.List(t.Context(), "*")
		if took := time.Since(begin); err != nil || len(list) != 3*lookBatch || took != greetLimit {
			t.Fatalf("%d names, %v, after %v", len(list), err, took)
		}
		if s := list[0]; !s.Held || s.Votes[1].Outcome != backend.OutcomeSilent {
			t.Errorf("%+v", s)
		}
		ms[2].Down(true)
		list, err = b.List(t.Context(), "00*")
		var q *backend.QuorumError
		if !errors.Is(err, backend.ErrNoQuorum) || !errors.As(err, &q) || q.Op != "list" || q.Need != 2 ||
			!errors.Is(q.Votes[2].Err, memnode.ErrDown) {
			t.Errorf("%+v", err)
		}
		if len(list) != 10 || list[0].Held || !list[0].Partial || list[0].Remaining != 0 {
			t.Errorf("%+v", list)
		}
		ms[1].Thaw()
		_ = b.Close(t.Context())
	})
}

// TestListOnNodesThatDoNotVote: reading needs no guard.
func TestListOnNodesThatDoNotVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		l := mustTake(t, b, "x", "me")
		o, err := New([]Node{ms[0].Client(), ms[1].Client(), ms[2].Client()}, &Config{
			MaxTTL: 20 * time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ms[0].Set("redlock:node", "quarantine:something", 0)
		if list := mustList(t, o, "*", "x"); !list[0].Held || list[0].Token != l.Token() {
			t.Errorf("%+v", list)
		}
		_ = o.Close(t.Context())
		_ = l.Release(t.Context())
		_ = b.Close(t.Context())
	})
}

// blind is a node whose user lacks a right: to scan, or to read.
type blind struct {
	Node
	read bool
}

func (d blind) Scan(ctx context.Context, p node.Scan) (node.ScanReply, error) {
	if d.read {
		return d.Node.Scan(ctx, p)
	}
	return node.ScanReply{}, &node.CallError{Denied: true, Err: errors.New("NOPERM scan")}
}

func (d blind) Call(_ context.Context, c *node.Call) (*node.Reply, error) {
	r := &node.Reply{Answers: make([]node.Answer, len(c.Ops))}
	for i := range r.Answers {
		r.Answers[i] = node.Answer{Code: node.Failed, Denied: true, Err: "can't run this command"}
	}
	return r, nil
}

func TestListNotPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, read := range []bool{false, true} {
			m := memnode.New("a")
			m.Set("redlock:{x}", strings.Repeat("a", 32)+":1", time.Minute)
			b, err := New([]Node{blind{m, read}}, &Config{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			list, err := b.List(t.Context(), "*")
			if len(list) != 0 || !errors.Is(err, backend.ErrNotPermitted) || !errors.Is(err, backend.ErrUnfit) {
				t.Errorf("read %v: %v, %v", read, list, err)
			}
			_ = b.Close(t.Context())
		}
	})
}

// TestListEnds: with the caller's context, and with the backend.
func TestListEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		for _, m := range ms {
			m.Freeze()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := b.List(ctx, "*")
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, backend.ErrNoQuorum) || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
		done := make(chan error)
		go func() {
			_, err := b.List(t.Context(), "*")
			done <- err
		}()
		synctest.Wait()
		go b.Close(t.Context())
		if err := <-done; !errors.Is(err, backend.ErrClosed) || errors.Is(err, context.Canceled) {
			t.Errorf("while it was closed: %v", err)
		}
		synctest.Wait()
	})
}

func TestListPatterns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ms := three(t, nil)
		for _, name := range []string{"a", "a*", "a/b", "[a]", "\xff", "ключ"} {
			ms[0].Set("redlock:{"+name+"}", strings.Repeat("a", 32)+":1", time.Minute)
		}
		mustList(t, b, "a*", "a", "a*", "a/b")
		mustList(t, b, `a\*`, "a*")
		mustList(t, b, `\[*`, "[a]")
		mustList(t, b, "\xff", "\xff")
		mustList(t, b, "к*", "ключ")
		for _, pattern := range []string{"[", "[a", "[a-]", `x\`, "[а-я]", strings.Repeat("x", 1025)} {
			if list, err := b.List(t.Context(), pattern); list != nil || !errors.Is(err, backend.ErrBadOption) {
				t.Errorf("%q: %v, %v", pattern, list, err)
			}
		}
		_ = b.Close(t.Context())
	})
}
