package integration

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/redlock/testkit/await"
)

// TestTokensWhileNodesForget: four processes take leases while nodes are killed, come back
// empty, and vote again. Every token is given out once, and those of one name are in order
// wherever one call had returned before another began. TestSoakTokensWhileNodesForget is
// the long form.
func TestTokensWhileNodesForget(t *testing.T) {
	t.Parallel()
	tokensWhileNodesForget(t, 300, 1)
}

// TestSoakTokensWhileNodesForget takes about a minute.
func TestSoakTokensWhileNodesForget(t *testing.T) {
	if os.Getenv("REDLOCK_SOAK") != "1" {
		t.Skip("REDLOCK_SOAK is not set; see make soak")
	}
	tokensWhileNodesForget(t, 2000, 8)
}

// tokensWhileNodesForget goes on for so many rounds, and until there have been so many
// grants. In a round three nodes forget, two of them at a time. One name is taken by those
// three alone, before and after, and never in between: nothing but what the others told them
// when they came back keeps its tokens in order.
func tokensWhileNodesForget(t *testing.T, grants, rounds int) {
	ns := start(t, 5)
	lk := ns.open(shortOptions())
	// Counters far above what any clock would give: they alone keep the order.
	for i := range ns.servers {
		if err := ns.do(i, "HSET", "redlock:tokens", "floor", fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())).Error(); err != nil {
			t.Fatal(err)
		}
	}
	var got grantLog
	stop := got.collect(ns, 4)
	for range rounds {
		order := rand.Perm(5)
		forgetful, others := order[:3], order[3:]
		rare := func() {
			ns.freeze(others...)
			g := grant{name: "rare", called: instant()}
			l := take(t, lk, g.name, nil)
			g.returned, g.token, g.byClock = instant(), uint64(l.Token()), l.TokenByClock()
			got.add(g)
			release(t, l)
			ns.thaw(others...)
		}
		rare()
		ns.kill(forgetful[0])
		got.awaitMore(t, 3)
		ns.restart(forgetful[0])
		ns.restartEmpty(forgetful[1])
		awaitVote(t, ns, forgetful[0])
		awaitVote(t, ns, forgetful[1])
		ns.restartEmpty(forgetful[2])
		awaitVote(t, ns, forgetful[2])
		rare()
		got.awaitMore(t, 3)
	}
	await.True(t, 5*time.Minute, "enough grants", func() bool { return got.len() >= grants })
	stop()
	got.check(t)
	t.Logf("%d grants", got.len())
}

// awaitVote waits until a node votes again.
func awaitVote(t *testing.T, ns *nodes, i int) {
	t.Helper()
	await.True(t, patience, fmt.Sprintf("node %d votes again", i+1), func() bool {
		life, _, _ := strings.Cut(ns.text(i, "GET", "redlock:node"), "|")
		return life != "" && strings.Contains(ns.text(i, "INFO", "server"), "run_id:"+life[:min(len(life), 40)])
	})
}

// grantLog collects the grants of several processes.
type grantLog struct {
	mu  sync.Mutex
	all []grant
	n   atomic.Int64
}

func (g *grantLog) len() int { return int(g.n.Load()) }

func (g *grantLog) awaitMore(t *testing.T, n int) {
	t.Helper()
	from := g.len()
	await.True(t, patience, "grants go on", func() bool { return g.len() >= from+n })
}

// collect starts processes and notes what they are granted, until it is told to stop.
func (g *grantLog) collect(ns *nodes, processes int) (stop func()) {
	var readers sync.WaitGroup
	var inputs []io.Closer
	for range processes {
		in, out := ns.spawnFed(roleCount, maxTTLEnv+"="+shortOptions().MaxTTL.String())
		inputs = append(inputs, in)
		readers.Go(func() { g.read(ns.t, out) })
	}
	return func() {
		for _, in := range inputs {
			_ = in.Close()
		}
		readers.Wait()
	}
}

func (g *grantLog) read(t testing.TB, out *bufio.Reader) {
	for {
		text, err := out.ReadString('\n')
		if err != nil {
			return
		}
		var one grant
		if n, err := fmt.Sscan(text, (*int64)(&one.called), (*int64)(&one.returned), &one.name, &one.token, &one.byClock); n != 5 {
			t.Errorf("a process says %q: %v", text, err)
			return
		}
		g.add(one)
	}
}

func (g *grantLog) add(one grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, one)
	g.n.Add(1)
}

// check fails if a token was given out twice under a name, or is not larger than all
// that had been given out when its call began.
func (g *grantLog) check(t *testing.T) {
	t.Helper()
	byName := map[string][]grant{}
	for _, one := range g.all {
		byName[one.name] = append(byName[one.name], one)
		if one.byClock {
			t.Errorf("the order of token %d of %s rests on a clock, although enough nodes voted", one.token, one.name)
		}
	}
	for name, all := range byName {
		returned := slices.SortedFunc(slices.Values(all), func(a, b grant) int { return cmp.Compare(a.returned, b.returned) })
		slices.SortFunc(all, func(a, b grant) int { return cmp.Compare(a.called, b.called) })
		given := map[uint64]bool{}
		var highest uint64
		for next := range all {
			for len(returned) > 0 && returned[0].returned < all[next].called {
				highest = max(highest, returned[0].token)
				returned = returned[1:]
			}
			if given[all[next].token] {
				t.Errorf("token %d of %s was given out twice", all[next].token, name)
			}
			given[all[next].token] = true
			if all[next].token <= highest {
				t.Errorf("token %d of %s, asked for when %d had been given out", all[next].token, name, highest)
			}
		}
	}
	if len(byName) != countedNames+1 {
		t.Errorf("grants under %d names, want %d", len(byName), countedNames+1)
	}
}
