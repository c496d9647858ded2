package quorum

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/redlock/backend"
	"example.com/redlock/memnode"
)

// logLines is a log that remembers its lines.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// about returns the lines about a node.
func (l *logLines) about(node string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, "node="+node+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// While a caller waits it is told which nodes are in the way, and why.
func TestAWaitNamesTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := []*memnode.Node{memnode.New("a"), memnode.New("b"), memnode.New("c")}
		lost := make(chan error, 100)
		b, err := New([]Node{ms[0].Client(), ms[1].Client(), &liar{Node: ms[2].Client(), lie: evicting}}, &Config{
			Logger: slog.New(slog.DiscardHandler),
			Observer: func(e backend.Event) {
				if e.Kind == backend.EventAttemptLost {
					lost <- e.Err
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Init(t.Context(), backend.InitOptions{})
		ms[0].Down(true)
		var waits []error
		_, err = b.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, Wait: time.Second, OnWait: func(w backend.Wait) {
			waits = append(waits, w.Err)
		}})
		if err == nil {
			t.Fatal("two nodes of three are out")
		}
		for _, told := range []error{waits[0], <-lost} {
			for _, want := range []string{"no quorum", "a failed, memnode: down", "c failed, node unfit: server may evict leases"} {
				if !strings.Contains(told.Error(), want) {
					t.Errorf("not said %q: %v", want, told)
				}
			}
			if !errors.Is(told, backend.ErrNoQuorum) {
				t.Errorf("%v", told)
			}
		}
		_ = b.Close(t.Context())
	})
}

// The log and the errors say why a node does not vote. Only where all nodes are blank
// it may help to declare them, and nobody knows how long their leases were.
func TestWhyANodeDoesNotVote(t *testing.T) {
	declared := func(t *testing.T, b *Backend) { b.Init(t.Context(), backend.InitOptions{}) }
	for name, test := range map[string]struct {
		before  func(t *testing.T, c *cluster)
		log     string
		err     string
		declare bool
	}{
		"new": {
			before: func(*testing.T, *cluster) {},
			log:    "it may have forgotten leases", err: "declare it with init); enough nodes vote in 4", declare: true,
		},
		"lost its data": {
			before: func(t *testing.T, c *cluster) {
				declared(t, c.open("abc", Config{}))
				c.at["a"].Wipe()
				c.at["b"].Down(true)
			},
			log: "it may have forgotten leases", err: "a (lost its data); enough nodes vote in 4",
		},
		"restarted": {
			before: func(t *testing.T, c *cluster) {
				declared(t, c.open("abc", Config{}))
				c.at["a"].Restart(true)
				c.at["b"].Down(true)
			},
			log: "it may have forgotten leases", err: "a (restarted, or was given other data); enough nodes vote in 4",
		},
		"reconfigured": {
			before: func(t *testing.T, c *cluster) {
				declared(t, c.open("ab", Config{}))
				c.reconfigure(c.open("abc", Config{}), "")
			},
			log: "leases of another configuration may still be held", err: "a (was given another configuration)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				test.before(t, c)
				log := &logLines{}
				b, err := New(c.nodes("abc"), &Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				_, err = b.Acquire(t.Context(), backend.Request{Name: "x", TTL: time.Second, Wait: time.Second})
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v\nwant %s", err, test.err)
				}
				lines := log.about("a")
				if len(lines) != 1 || !strings.Contains(lines[0], test.log) {
					t.Fatalf("log %q, want %s", lines, test.log)
				}
				for hint, text := range map[string]string{"init": err.Error() + lines[0], "at most": err.Error()} {
					if strings.Contains(text, hint) != test.declare {
						t.Errorf("%q is said, or not: %s", hint, text)
					}
				}
				_ = b.Close(t.Context())
			})
		})
	}
}
