package difftest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"example.com/redlock/internal/node"
	"example.com/redlock/internal/nodemodel"
	"example.com/redlock/redisnode"
	"example.com/redlock/testkit/embedded"
)

// scanner has the same keys on a server and in the model.
type scanner struct {
	t     *testing.T
	raw   rueidis.Client
	node  *redisnode.Node
	model *nodemodel.Node
}

func newScanner(t *testing.T, url, addr string) *scanner {
	raw, n := connect(t, url, addr)
	return &scanner{t, raw, n, nodemodel.New("?")}
}

// bothServers runs a test on a real server and on the embedded one.
func bothServers(t *testing.T, test func(*testing.T, *scanner)) {
	t.Run("real", func(t *testing.T) {
		s := startServer(t)
		test(t, newScanner(t, s.URL(), s.Addr()))
	})
	t.Run("embedded", func(t *testing.T) {
		s, err := embedded.Start(embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		test(t, newScanner(t, s.URL(), s.Addr()))
	})
}

func (s *scanner) do(args ...string) {
	s.t.Helper()
	if err := s.raw.Do(s.t.Context(), s.raw.B().Arbitrary(args...).Build()).Error(); err != nil {
		s.t.Fatalf("%q: %v", args, err)
	}
}

func (s *scanner) set(key, text string) {
	s.do("SET", key, text)
	s.model.Set(key, nodemodel.Value{Text: text})
}

func (s *scanner) setHash(key string) {
	s.do("HSET", key, "x", "y")
	s.model.SetField(key, "x", "y")
}

// pages reads all pages and returns the names, each once and sorted.
func pages(t *testing.T, scan node.Scan, page func(node.Scan) (node.ScanReply, error)) (names []string, n int) {
	t.Helper()
	for {
		r, err := page(scan)
		if err != nil {
			t.Fatalf("%+v: %v", scan, err)
		}
		n++
		names = append(names, r.Names...)
		if scan.Cursor = r.Next; scan.Cursor == "" {
			slices.Sort(names)
			return slices.Compact(names), n
		}
	}
}

// compare returns the names that both find, which must be the same.
func (s *scanner) compare(scan node.Scan) []string {
	s.t.Helper()
	got, _ := pages(s.t, scan, func(p node.Scan) (node.ScanReply, error) { return s.node.Scan(s.t.Context(), p) })
	want, _ := pages(s.t, scan, func(p node.Scan) (node.ScanReply, error) { return s.model.Scan(p, 0), nil })
	if !slices.Equal(got, want) {
		s.t.Fatalf("%+v\nserver %q\n model %q", scan, got, want)
	}
	return got
}

func TestDifferentialScan(t *testing.T) {
	values := []string{
		idA + ":5", idA + ":5 somebody else", "~broken " + idA + ":5", "~broken ~broken " + idA + ":5", "~broken ",
		idA + ":", idA + ":x", idA + "0:5", idA[1:] + ":5", "ABCDEF" + idA[6:] + ":5", idA, "", "\x00\xff",
		idA + ":5" + strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20),
	}
	for _, namespace := range []string{"redlock", `a*b?[c]^\-`} {
		t.Run(namespace, func(t *testing.T) {
			bothServers(t, func(t *testing.T, s *scanner) {
				keys := []node.Keyspace{{Namespace: namespace}, {Namespace: namespace, Plain: true}, {Namespace: "another"}}
				for i, value := range values {
					for j, k := range keys {
						s.set(k.Lease(fmt.Sprintf("%d/%d", i, j)), value)
					}
				}
				for _, k := range keys {
					for _, name := range append(names, "", "}", "a}:line{", "*", "[a]", `\`, "^") {
						s.set(k.Lease(name), idB+":7")
					}
					s.setHash(k.Lease("hash"))
					s.set(k.Guard(), "guard")
					s.setHash(k.Tokens())
					s.set(k.Namespace+":{x}:waiters", "later")
				}
				for _, k := range keys {
					for _, count := range []int{1, 7, 1000} {
						if got := s.compare(node.Scan{Keys: k, Pattern: "*", Count: count}); len(got) < 10 {
							t.Errorf("%+v: only %q", k, got)
						}
					}
				}
			})
		})
	}
}

// TestDifferentialPatterns: what a glob means is what the server says.
func TestDifferentialPatterns(t *testing.T) {
	const pieces = `ab*?[]^-\}{/` + "\n"
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	text := func(most int) string {
		var b strings.Builder
		for range rnd.IntN(most + 1) {
			if rnd.IntN(12) == 0 {
				b.WriteByte(pick[byte](rnd, 0, 0x7f, 0x80, 0xff))
			} else {
				b.WriteByte(pieces[rnd.IntN(len(pieces))])
			}
		}
		return b.String()
	}
	s := startServer(t)
	sc := newScanner(t, s.URL(), s.Addr())
	plain := node.Keyspace{Namespace: "redlock", Plain: true}
	spaced := node.Keyspace{Namespace: `r*[x]\`}
	for range 300 {
		name := text(5)
		sc.set(plain.Lease(name), idA+":1")
		sc.set(spaced.Lease(name), idA+":1")
	}
	matching, refused := 0, 0
	for range 3000 {
		pattern := text(8)
		if _, err := node.ParsePattern(pattern); err != nil {
			refused++
			continue
		}
		for _, k := range []node.Keyspace{plain, spaced} {
			if len(sc.compare(node.Scan{Keys: k, Pattern: pattern, Count: 10_000})) > 0 {
				matching++
			}
		}
	}
	t.Logf("%d refused, %d with names", refused, matching)
	if matching < 300 || refused == 0 {
		t.Error("the patterns were no good")
	}
}

// TestScanPagesAreBounded: however many keys others have on a server, it looks at
// few at a time; and what stays while they come and go is found.
func TestScanPagesAreBounded(t *testing.T) {
	f := setUp(t)
	const leases, others, count = 500, 5000, 100
	var want []string
	for i := range leases {
		name := fmt.Sprintf("%03d", i)
		want = append(want, name)
		f.do("SET", f.keys.Lease(name), idA+":1")
	}
	made := 0
	grow := func(n int) {
		args := []string{"MSET"}
		for range n {
			made++
			args = append(args, "other"+strconv.Itoa(made), "x")
		}
		f.do(args...)
	}
	grow(others)
	f.do("CONFIG", "RESETSTAT")
	got, n := pages(t, node.Scan{Keys: f.keys, Pattern: "*", Count: count}, func(p node.Scan) (node.ScanReply, error) {
		r, err := f.node.Scan(t.Context(), p)
		if len(r.Names) > 2*count {
			t.Errorf("a page of %d names", len(r.Names))
		}
		if made < 4*others {
			grow(200) // the server's table grows and is moved meanwhile
		} else {
			f.do("DEL", "other1", "other"+strconv.Itoa(made))
		}
		return r, err
	})
	if !slices.Equal(got, want) {
		t.Errorf("%d names of %d", len(got), len(want))
	}
	if n < (leases+others)/count/2 {
		t.Errorf("only %d pages", n)
	}
	if stats := f.do("INFO", "commandstats"); strings.Contains(stats, "cmdstat_keys:") || !strings.Contains(stats, fmt.Sprintf("cmdstat_scan:calls=%d,", n)) {
		t.Errorf("%d pages took %s", n, stats)
	}
}

func TestScanDenied(t *testing.T) {
	f := setUp(t)
	f.do("SET", "n", idA+":1")
	f.do("ACL", "SETUSER", "noscan", "on", ">pw", "~*", "+@all", "-scan")
	f.do("ACL", "SETUSER", "noread", "on", ">pw", "~*", "+@all", "-getrange")
	f.do("ACL", "SETUSER", "nokeys", "on", ">pw", "~redlock:*", "+@all")
	f.do("ACL", "SETUSER", "minimal", "on", ">pw", "~n", "~redlock:*", "+eval", "+scan", "+getrange")
	scan := func(user string) ([]string, error) {
		n := f.open("redis://" + user + ":pw@" + f.server.Addr())
		r, err := n.Scan(t.Context(), node.Scan{Keys: node.Keyspace{Namespace: "redlock", Plain: true}, Pattern: "*", Count: 10})
		return r.Names, err
	}
	for _, user := range []string{"noscan", "noread", "nokeys"} {
		_, err := scan(user)
		wantCallError(t, err, false, true)
	}
	if names, err := scan("minimal"); err != nil || !slices.Equal(names, []string{"n"}) {
		t.Errorf("%q, %v", names, err)
	}
}
