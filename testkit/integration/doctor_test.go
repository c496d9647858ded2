package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/backend"
	"example.com/redlock/internal/node"
	"example.com/redlock/quorum"
	"example.com/redlock/redisnode"
	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/clockshim"
	"example.com/redlock/testkit/faultproxy"
	"example.com/redlock/testkit/redisserver"
)

// ailment is something wrong with the third of three nodes, and what Doctor is to
// find: nothing else.
type ailment struct {
	third redisserver.Options
	// spoil makes the third node ill. It returns the URL under which clients are to
	// look for it, or nothing for its own.
	spoil func(*testing.T, *nodes) string
	finds []string // severity, check: part of the text
}

func does(commands ...string) func(*testing.T, *nodes) string {
	return func(_ *testing.T, ns *nodes) string {
		for _, c := range commands {
			if err := ns.do(2, strings.Split(c, " ")...).Error(); err != nil {
				ns.t.Fatal(err)
			}
		}
		return ""
	}
}

// as makes a user, and returns the URL of the third node for it.
func as(rights ...string) func(*testing.T, *nodes) string {
	return func(_ *testing.T, ns *nodes) string {
		ns.text(2, append([]string{"ACL", "SETUSER", "u", "on", ">pw", "~redlock:*", "resetchannels", "&redlock:wake:*", "+@all"}, rights...)...)
		return "redis://u:pw@" + ns.servers[2].Addr()
	}
}

// ailments are by what is wrong. Those of clocks are in TestDoctorOfClocks.
var ailments = map[string]ailment{
	"nothing":           {},
	"killed":            {spoil: func(_ *testing.T, ns *nodes) string { ns.kill(2); return "" }, finds: []string{"failure, reachable: connection refused"}},
	"frozen":            {spoil: func(_ *testing.T, ns *nodes) string { ns.freeze(2); return "" }, finds: []string{"failure, reachable: does not answer"}},
	"slow":              {spoil: slowly, finds: []string{"warning, reachable: and votes are waited for 500ms at most"}},
	"no such database":  {spoil: func(_ *testing.T, ns *nodes) string { return ns.servers[2].URL() + "/99" }, finds: []string{"failure, reachable: DB index is out of range"}},
	"no password":       {spoil: does("CONFIG SET requirepass pw"), finds: []string{"failure, login: NOAUTH"}},
	"wrong password":    {spoil: wrongPassword, finds: []string{"failure, login: WRONGPASS"}},
	"no PEXPIRE":        {spoil: as("-pexpire"), finds: []string{"failure, permissions: not permitted: PEXPIRE"}},
	"no SET, no DEL":    {spoil: as("-set", "-del"), finds: []string{"failure, permissions: not permitted: SET, DEL"}},
	"no INFO":           {spoil: as("-info"), finds: []string{"failure, permissions: not permitted: INFO"}},
	"no scripts":        {spoil: as("-@scripting"), finds: []string{"failure, permissions: not permitted: EVAL, EVALSHA, SCRIPT LOAD"}},
	"no keys":           {spoil: as("resetkeys", "~other"), finds: []string{"failure, permissions: not permitted on the keys and channels of the namespace: GET, SET, DEL,"}},
	"no PUBLISH":        {spoil: as("-publish"), finds: []string{"failure, permissions: not permitted: PUBLISH"}},
	"no SUBSCRIBE":      {spoil: as("-subscribe"), finds: []string{"failure, permissions: not permitted: SUBSCRIBE"}},
	"no channels":       {spoil: as("resetchannels"), finds: []string{"failure, permissions: not permitted on the keys and channels of the namespace: PUBLISH, SUBSCRIBE"}},
	"other channels":    {spoil: as("resetchannels", "&app:*"), finds: []string{"failure, permissions: not permitted on the keys and channels of the namespace: PUBLISH, SUBSCRIBE"}},
	"no sorted sets":    {spoil: as("-@sortedset"), finds: []string{"failure, permissions: not permitted: ZADD, ZREM, ZCARD, ZCOUNT, ZRANGE, ZRANGEBYSCORE, ZREVRANGE, ZRANK, ZSCORE"}},
	"no EXISTS":         {spoil: as("-exists"), finds: []string{"failure, permissions: not permitted: EXISTS"}},
	"no HGETALL":        {spoil: as("-hgetall"), finds: []string{"warning, permissions: not permitted: HGETALL; other nodes' quarantines"}},
	"no SCAN":           {spoil: as("-scan"), finds: []string{"hint, permissions: not permitted: SCAN; redlock list does not work"}},
	"no EVALSHA":        {spoil: as("-evalsha"), finds: []string{"hint, permissions: not permitted: EVALSHA; each call sends the whole script"}},
	"no CONFIG":         {spoil: as("-config")},
	"cluster":           {spoil: func(t *testing.T, _ *nodes) string { return serverURL("--cluster-enabled", "yes")(t) }, finds: []string{"failure, mode: cluster"}},
	"sentinel":          {spoil: func(t *testing.T, _ *nodes) string { return startSentinel(t) }, finds: []string{"failure, mode: sentinel"}},
	"replica":           {spoil: func(_ *testing.T, ns *nodes) string { return does("REPLICAOF "+replicaOf(ns.servers[0]))(nil, ns) }, finds: []string{"failure, role: which is a node itself"}},
	"same server":       {spoil: twinOfTheFirst, finds: []string{"failure, distinct: it is the same server as 127.0.0.1:"}},
	"evicts":            {spoil: does("CONFIG SET maxmemory 100mb", "CONFIG SET maxmemory-policy allkeys-lru"), finds: []string{"failure, eviction: maxmemory-policy is allkeys-lru"}},
	"evicts, unlimited": {spoil: does("CONFIG SET maxmemory-policy allkeys-lru")},
	"limited":           {spoil: does("CONFIG SET maxmemory 100mb")},
	"out of memory":     {spoil: does("CONFIG SET maxmemory 1"), finds: []string{"failure, writes: OOM"}},
	"too few replicas":  {spoil: does("CONFIG SET min-replicas-to-write 1"), finds: []string{"failure, writes: NOREPLICAS"}},
	"guard of another":  {spoil: does("DEL redlock:node", "HSET redlock:node a b"), finds: []string{"failure, keys: redlock:node"}},
	"guard is text":     {spoil: does("SET redlock:node hello"), finds: []string{"failure, keys: redlock:node"}},
	"tokens of another": {spoil: does("SET redlock:tokens x"), finds: []string{"failure, keys: redlock:tokens"}},
	"credit of another": {spoil: does("SET redlock:quarantine x"), finds: []string{"warning, keys: redlock:quarantine"}},
	"another MaxTTL":    {spoil: showing(2, "|30000|", "|20000|"), finds: []string{"failure, configuration: max TTL in ms: 30000 here, 20000 on the node"}},
	"another quorum":    {spoil: showing(2, "|3|2|", "|3|3|"), finds: []string{"failure, configuration: quorum: 2 here, 3 on the node"}},
	"passed by":         {spoil: passedBy, finds: []string{"failure, configuration: outdated: it has the configuration of epoch 1, others have that of epoch 2"}},
	"blank":             {spoil: does("FLUSHALL"), finds: []string{"failure, declared: lost its data; votes in 45.3s"}},
	"restarted": {third: server("--appendonly", "yes"), spoil: func(_ *testing.T, ns *nodes) string { ns.restart(2); return "" },
		finds: []string{"failure, quarantine: restarted, or was given other data; votes in 45.3s after the first client has met it"}},
	"blank, and met":     {spoil: flushedAndMet, finds: []string{"failure, quarantine: lost its data"}},
	"counters by clock":  {spoil: does("HSET redlock:tokens clock 1"), finds: []string{"warning, counters: rests on the node's clock"}},
	"no snapshot":        {third: server("--save", "3600 1", "--stop-writes-on-bgsave-error", "no"), spoil: failSnapshot, finds: []string{"warning, persistence: the last snapshot failed"}},
	"stopped by its RDB": {third: server("--save", "3600 1"), spoil: failSnapshot, finds: []string{"failure, writes: MISCONF", "warning, persistence: the last snapshot failed"}},
	"AOF":                {third: server("--appendonly", "yes", "--appendfsync", "always")},
	"durable":            {third: server("--appendonly", "yes", "--appendfsync", "always"), spoil: vouched("always")},
	"durable no more":    {third: server("--appendonly", "yes", "--appendfsync", "always"), spoil: vouched("everysec"), finds: []string{"warning, persistence: although the node is marked as durable: appendfsync is everysec, not always"}},
	"durable, restarted": {third: server("--appendonly", "yes", "--appendfsync", "always"), spoil: func(t *testing.T, ns *nodes) string {
		defer ns.restart(2)
		return vouched("always")(t, ns)
	}},
	"endless lease": {spoil: does("SET redlock:{n} x"), finds: []string{`warning, leases: "n"`}},
}

func server(args ...string) redisserver.Options { return redisserver.Options{Args: args} }

func slowly(t *testing.T, ns *nodes) string {
	p := proxyOf(t, ns.servers[2])
	p.SetDelay(faultproxy.ToServer, 600*time.Millisecond)
	return p.URL()
}

func proxyOf(t *testing.T, s *redisserver.Server) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Start(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func twinOfTheFirst(t *testing.T, ns *nodes) string { return proxyOf(t, ns.servers[0]).URL() }

func wrongPassword(t *testing.T, ns *nodes) string {
	does("CONFIG SET requirepass another")(t, ns)
	return "redis://:pw@" + ns.servers[2].Addr()
}

// showing changes a part of the configuration that a node shows.
func showing(i int, ours, theirs string) func(*testing.T, *nodes) string {
	return func(t *testing.T, ns *nodes) string {
		guard := ns.text(i, "GET", "redlock:node")
		other := strings.Replace(guard, ours, theirs, 1)
		if other == guard {
			t.Fatalf("%s is not in %s", ours, guard)
		}
		ns.text(i, "SET", "redlock:node", other)
		return ""
	}
}

// vouched is a node that somebody has marked as durable, and then set up otherwise.
func vouched(fsync string) func(*testing.T, *nodes) string {
	return func(t *testing.T, ns *nodes) string {
		lk := openBlank(t, ns.urls(), &redlock.Options{Cluster: sick, NodeTimeout: generous})
		if states, _ := lk.Init(t.Context(), &redlock.InitOptions{Durable: true}); !states[2].Durable {
			t.Fatalf("%+v", states[2])
		}
		return does("CONFIG SET appendfsync "+fsync)(t, ns)
	}
}

// passedBy is a node that has the configuration from before a change.
func passedBy(t *testing.T, ns *nodes) string {
	for i := range 2 {
		showing(i, "|1|1|3|", "|2|1|3|")(t, ns)
	}
	return showing(2, "|30000|", "|20000|")(t, ns)
}

// flushedAndMet is a node whose quarantine has begun.
func flushedAndMet(t *testing.T, ns *nodes) string {
	does("FLUSHALL")(t, ns)
	lk := openBlank(t, ns.urls(), &redlock.Options{Cluster: sick, NodeTimeout: generous})
	warm(t, lk)
	await.True(t, patience, "the node is in quarantine", func() bool {
		return strings.HasPrefix(ns.text(2, "GET", "redlock:node"), "quarantine:")
	})
	return ""
}

func failSnapshot(t *testing.T, ns *nodes) string {
	dir, err := ns.do(2, "CONFIG", "GET", "dir").AsStrMap()
	if err == nil {
		err = os.RemoveAll(dir["dir"])
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

// sick is the cluster of all nodes here: a proxy must not make them others.
const sick = "sick"

// startThree starts three servers, the third with options of its own, declares
// them, and leaves a lease on them.
func startThree(t *testing.T, rest, third redisserver.Options) *nodes {
	t.Helper()
	ns := start(t, 0)
	if slices.Contains(third.Args, "--save") {
		third.Dir = filepath.Join(t.TempDir(), "data")
		if err := os.Mkdir(third.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []redisserver.Options{rest, rest, third} {
		ns.servers, ns.direct = append(ns.servers, redisserver.StartWith(t, o)), append(ns.direct, nil)
	}
	lk := openBlank(t, ns.urls(), &redlock.Options{Cluster: sick, NodeTimeout: generous})
	if _, err := lk.Init(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := take(t, lk, "held", nil).Handle(); err != nil {
		t.Fatal(err)
	}
	return ns
}

// doctor is what a Doctor finds, without what is well, and its error.
func doctor(t *testing.T, lk *redlock.Locker) ([]redlock.Finding, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	findings, err := lk.Doctor(ctx)
	return slices.DeleteFunc(findings, func(f redlock.Finding) bool { return f.Severity == redlock.SeverityOK }), err
}

// wantFindings compares findings with "severity, check: part of the text", of a
// node, or of all if none is named.
func wantFindings(t *testing.T, findings []redlock.Finding, node string, want []string) {
	t.Helper()
	var got []string
	for _, f := range findings {
		i := len(got)
		got = append(got, fmt.Sprintf("%s %s, %s: %s", f.Node, f.Severity, f.Check, f.Text))
		if f.Remedy == "" || f.Node != node && f.Node != "" {
			t.Errorf("no remedy, or not about %s: %+v", node, f)
		}
		if (f.Err != nil) != (f.Severity == redlock.SeverityFailure && f.Node != "") {
			t.Errorf("the error of %+v", f)
		}
		if i >= len(want) {
			continue
		}
		what, text, _ := strings.Cut(want[i], ": ")
		if what != fmt.Sprintf("%s, %s", f.Severity, f.Check) || !strings.Contains(f.Text, text) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDoctor makes each check fail on a real server, and no other. Two nodes go on
// voting, so that there is no error.
func TestDoctor(t *testing.T) {
	t.Parallel()
	for name, a := range ailments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := startThree(t, redisserver.Options{}, a.third)
			urls := ns.urls()
			if a.spoil != nil {
				if url := a.spoil(t, ns); url != "" {
					urls[2] = url
				}
			}
			if slices.Contains(a.third.Args, "--save") {
				does("SET redlock:other x", "BGSAVE")(t, ns)
				await.True(t, patience, "the snapshot has failed", func() bool {
					return strings.Contains(ns.text(2, "INFO", "persistence"), "rdb_last_bgsave_status:err")
				})
			}
			lk := openBlank(t, urls, &redlock.Options{Cluster: sick, NodeTimeout: generous})
			findings, err := doctor(t, lk)
			if err != nil {
				t.Error(err)
			}
			wantFindings(t, findings, lk.Nodes(t.Context())[2].Node, a.finds)
			for _, f := range findings {
				if strings.Contains(fmt.Sprintf("%+v", f), "pw@") {
					t.Errorf("a password is told: %+v", f)
				}
			}
		})
	}
}

// TestDoctorChangesNothing, not even while it finds out that nothing is wrong.
func TestDoctorChangesNothing(t *testing.T) {
	t.Parallel()
	ns := startThree(t, redisserver.Options{}, redisserver.Options{})
	changes := func() (all []string) {
		for i := range ns.servers {
			for line := range strings.Lines(ns.text(i, "INFO", "persistence")) {
				if strings.HasPrefix(line, "rdb_changes_since_last_save:") {
					all = append(all, line)
				}
			}
		}
		return all
	}
	for _, plain := range []bool{false, true} {
		lk := openBlank(t, ns.urls(), &redlock.Options{Cluster: sick, PlainKeys: plain, NodeTimeout: generous, Namespace: map[bool]string{true: "other"}[plain]})
		before := changes()
		if _, err := doctor(t, lk); (err != nil) != plain { // plain: blank nodes
			t.Error(err)
		}
		if after := changes(); !slices.Equal(before, after) || len(after) != 3 {
			t.Errorf("plain keys %v: %q became %q", plain, before, after)
		}
	}
}

// older is a node whose server says that it is older than it is.
type older struct{ quorum.Node }

func (o older) Hello(ctx context.Context, h node.Hello) (node.HelloReply, error) {
	r, err := o.Node.Hello(ctx, h)
	r.Version = "6.2.14"
	return r, err
}

// TestDoctorOfAnOldServer has a server lie, for want of one so old.
func TestDoctorOfAnOldServer(t *testing.T) {
	t.Parallel()
	ns := startThree(t, redisserver.Options{}, redisserver.Options{})
	list := make([]quorum.Node, 3)
	for i, url := range ns.urls() {
		n, err := redisnode.Open(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = n
	}
	list[2] = older{list[2]}
	b, err := quorum.New(list, &quorum.Config{Cluster: sick, Logger: quiet, NodeTimeout: generous})
	if err != nil {
		t.Fatal(err)
	}
	lk, err := redlock.New(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, lk) })
	findings, err := doctor(t, lk)
	if err != nil {
		t.Error(err)
	}
	wantFindings(t, findings, list[2].Name(), []string{`failure, version: server version "6.2.14" is below 7`})
}

// TestDoctorOfClocks: to be off is only worth knowing; what does not run as fast
// as it should is to be mended.
func TestDoctorOfClocks(t *testing.T) {
	t.Parallel()
	const ahead = time.Hour + 500*time.Millisecond // not near where the text changes
	for name, tt := range map[string]struct {
		all   bool // of all nodes, not of the third
		spoil func(*clockshim.Clock)
		finds []string
	}{
		"true":         {spoil: func(*clockshim.Clock) {}},
		"ahead":        {spoil: func(c *clockshim.Clock) { c.Jump(ahead) }, finds: []string{"hint, time: 1h0m0."}},
		"behind":       {spoil: func(c *clockshim.Clock) { c.Jump(-ahead) }, finds: []string{"hint, time: -1h0m0."}},
		"stands still": {spoil: (*clockshim.Clock).Freeze, finds: []string{"warning, clock: stands still"}},
		"fast":         {spoil: func(c *clockshim.Clock) { c.Rate(1.08) }, finds: []string{"warning, clock: runs fast, by "}},
		"slow":         {spoil: func(c *clockshim.Clock) { c.Rate(0.92) }, finds: []string{"warning, clock: runs slow, by "}},
		"slewed":       {spoil: func(c *clockshim.Clock) { c.Rate(1.0005) }},
		"all ahead":    {all: true, spoil: func(c *clockshim.Clock) { c.Jump(ahead) }, finds: []string{"hint, local time: -1h0m0."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock, err := clockshim.New(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			rest := redisserver.Options{}
			if tt.all {
				rest.Clock = clock
			}
			ns := startThree(t, rest, redisserver.Options{Clock: clock})
			lk := openBlank(t, ns.urls(), &redlock.Options{Cluster: sick, NodeTimeout: generous})
			tt.spoil(clock)
			findings, err := doctor(t, lk)
			if err != nil {
				t.Error(err)
			}
			// A clock that runs off is soon off as well.
			if slices.ContainsFunc(findings, func(f redlock.Finding) bool { return f.Check == "clock" }) {
				findings = slices.DeleteFunc(findings, func(f redlock.Finding) bool { return f.Check == "time" })
			}
			wantFindings(t, findings, ns.servers[2].Addr()+"/0", tt.finds)
		})
	}
}

// TestDoctorOfManyNodes: what is about all of them.
func TestDoctorOfManyNodes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nodes, quorum int
		finds         []string
	}{
		"one":   {1, 0, nil},
		"two":   {2, 0, []string{"hint, nodes: 2, quorum 2: up to 0 may fail, no more than with one node less"}},
		"four":  {4, 0, []string{"hint, nodes: 4, quorum 3: up to 1 may fail, no more than with one node less"}},
		"wide":  {5, 4, []string{"hint, nodes: 5, quorum 4: up to 1 may fail; wider than the majority, so that 2 may forget"}},
		"broad": {3, 3, []string{"hint, nodes: 3, quorum 3: up to 0 may fail; wider than the majority, so that 2 may forget"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lk := start(t, tt.nodes).open(&redlock.Options{Quorum: tt.quorum})
			findings, err := doctor(t, lk)
			if err != nil {
				t.Error(err)
			}
			wantFindings(t, findings, "", tt.finds)
		})
	}
}

// TestDoctorWithoutAQuorum says what stands in the way, as an error too.
func TestDoctorWithoutAQuorum(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(ns *nodes, i int)
		check string
		is    []error
	}{
		"killed": {func(ns *nodes, i int) { ns.kill(i) }, "reachable", nil},
		"blank":  {func(ns *nodes, i int) { ns.text(i, "FLUSHALL") }, "declared", []error{redlock.ErrQuarantined}},
		"evicts": {func(ns *nodes, i int) {
			ns.text(i, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
		}, "eviction", []error{redlock.ErrUnfit}},
		"login":   {func(ns *nodes, i int) { ns.text(i, "CONFIG", "SET", "requirepass", "pw") }, "login", []error{redlock.ErrUnfit, redlock.ErrNotPermitted}},
		"foreign": {func(ns *nodes, i int) { ns.text(i, "SET", "redlock:node", "x") }, "keys", []error{redlock.ErrForeignKey}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := startThree(t, redisserver.Options{}, redisserver.Options{})
			lk := openBlank(t, ns.urls(), &redlock.Options{Cluster: sick, NodeTimeout: generous})
			tt.spoil(ns, 1)
			tt.spoil(ns, 2)
			findings, err := doctor(t, lk)
			is(t, err, append(tt.is, redlock.ErrNoQuorum))
			if v := votes(t, err); len(v) != 3 || v[0].Outcome != backend.OutcomeGranted || v[1].Outcome == backend.OutcomeGranted {
				t.Errorf("%+v", v)
			}
			var got []string
			for _, f := range findings {
				got = append(got, fmt.Sprintf("%s %s", f.Severity, f.Check))
			}
			if want := []string{"failure " + tt.check, "failure " + tt.check, "failure votes"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestDoctorHearsItsContext, and the end of its Locker.
func TestDoctorHearsItsContext(t *testing.T) {
	t.Parallel()
	ns := start(t, 1)
	lk := ns.open(nil)
	ns.freeze(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	within(t, 50*time.Millisecond, "a doctor whose context ends", func() {
		_, err := lk.Doctor(ctx)
		is(t, err, []error{context.DeadlineExceeded})
	})
	ns.thaw(0)
	closeLocker(t, lk)
	_, err := lk.Doctor(t.Context())
	is(t, err, []error{redlock.ErrClosed})
}
