package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	s, err := embedded.Start(embedded.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	before := s.RunID()
	_ = s.Restart(false)
	fmt.Println("the same process:", s.RunID() == before)
	// Output: the same process: false
}

func TestInfoIdentifiesTheServer(t *testing.T) {
	s := start(t)
	c := dial(t, s)
	for section, want := range map[string][]string{
		"server":      {"run_id:" + s.RunID(), "redis_version:7.", "redis_mode:standalone"},
		"REPLICATION": {"role:master", "master_replid2:" + strings.Repeat("0", 40)},
		"memory":      {"maxmemory:0", "maxmemory_policy:noeviction"},
		"everything":  {"run_id:" + s.RunID(), "role:master", "maxmemory:0", "aof_enabled:0"},
		"clients":     {"connected_clients:"},
	} {
		got := c.do("INFO", section)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("INFO %s lacks %q:\n%s", section, w, got)
			}
		}
	}
	if len(s.RunID()) != 40 {
		t.Errorf("run_id %q", s.RunID())
	}
}

// Each of these is something that the node's scripts rely on.
func TestScriptsFindWhatTheyNeed(t *testing.T) {
	s := start(t)
	c := dial(t, s)
	c.do("SET", "string", "x")
	for name, tc := range map[string]struct{ script, want string }{
		"run_id":      {`return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')`, s.RunID()},
		"policy":      {`return string.match(redis.call('INFO', 'memory'), 'maxmemory_policy:(%a+)')`, "noeviction"},
		"time":        {`local t = redis.call('TIME') return #t .. type(t[1])`, "2string"},
		"set":         {`return redis.call('SET', 'k', 'v', 'NX', 'PX', '60000').ok`, "OK"},
		"set refused": {`return tostring(redis.call('SET', 'string', 'v', 'NX', 'PX', '60000'))`, "false"},
		"expire gt": {`redis.call('SET', 'g', 'v', 'PX', '60000')
			return redis.call('PEXPIRE', 'g', '50000', 'GT') .. redis.call('PEXPIRE', 'g', '70000', 'GT')`, "01"},
		"pttl":     {`return redis.call('PTTL', 'string') .. redis.call('PTTL', 'absent')`, "-1-2"},
		"get none": {`return tostring(redis.call('GET', 'absent'))`, "false"},
		"del":      {`redis.call('SET', 'd', '1') return '' .. redis.call('DEL', 'd')`, "1"},
		"hmget":    {`redis.call('HSET', 'h', 'a', '1') local r = redis.call('HMGET', 'h', 'a', 'b') return r[1] .. tostring(r[2])`, "1false"},
		"zset": {`redis.call('ZADD', 'z', '2', 'b', '1', 'a') redis.call('ZADD', 'z', 'GT', '3', 'a')
			return table.concat(redis.call('ZRANGEBYSCORE', 'z', '-inf', '+inf', 'LIMIT', '0', '1'))`, "b"},
		"publish": {`return '' .. redis.call('PUBLISH', 'nobody', 'x')`, "0"},
		"sha1hex": {`return redis.sha1hex('')`, "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
		"pcall":   {`return redis.pcall('HGET', 'string', 'f').err`, "WRONGTYPE Operation against a key holding the wrong kind of value"},
		"numbers": {`return string.format('%.0f', tonumber('9007199254740991') - 1)`, "9007199254740990"},
	} {
		if got, want := c.do("EVAL", tc.script, "0"), proto.String(tc.want); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := c.do("EVAL", "return {err = 'STALE 17'}", "0"); got != proto.Error("STALE 17") {
		t.Errorf("error reply: %q", got)
	}
}

func TestTimeStandsStillWithinAScript(t *testing.T) {
	c := dial(t, start(t))
	script := `redis.call('SET', 'k', 'v', 'PX', '10') local a = redis.call('TIME')
		for i = 1, 1e5 do end
		local b = redis.call('TIME') return b[1] - a[1] + b[2] - a[2] + redis.call('PTTL', 'k')`
	if got := c.do("EVAL", script, "0"); got != proto.Int(10) {
		t.Errorf("elapsed us + PTTL ms = %q, want 10", got)
	}
}

func TestScriptCache(t *testing.T) {
	s := start(t)
	c := dial(t, s)
	sha := strings.Split(c.do("SCRIPT", "LOAD", "return ARGV[1]"), "\r\n")[1]
	if got := c.do("EVALSHA", sha, "0", "x"); got != proto.String("x") {
		t.Errorf("EVALSHA: %q", got)
	}
	if err := s.Restart(true); err != nil {
		t.Fatal(err)
	}
	if got := dial(t, s).do("EVALSHA", sha, "0", "x"); !strings.HasPrefix(got, "-NOSCRIPT ") {
		t.Errorf("EVALSHA after restart: %q", got)
	}
}

func TestExpiryFollowsTheWallClock(t *testing.T) {
	c := dial(t, start(t))
	const ttl = 50 * time.Millisecond
	before := time.Now()
	c.do("SET", "k", "v", "PX", "50")
	after := time.Now()
	var lastSeen time.Time // when the last GET that saw the key was sent
	await.True(t, 10*time.Second, "expiry", func() bool {
		sent := time.Now()
		if c.do("GET", "k") == proto.Nil {
			return true
		}
		lastSeen = sent
		return false
	})
	if now := time.Since(before); now < ttl {
		t.Errorf("expired %v after it was set, before its %v", now, ttl)
	}
	if late := lastSeen.Sub(after) - ttl; late > 0 {
		t.Errorf("alive %v after its %v", late, ttl)
	}
}

func TestAStoppedClockIsExact(t *testing.T) {
	s := start(t)
	c := dial(t, s)
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	s.SetTime(noon)
	c.do("SET", "k", "v", "PX", "1000")
	s.SetTime(noon.Add(999 * time.Millisecond))
	if got := c.do("PTTL", "k"); got != proto.Int(1) {
		t.Errorf("PTTL: %q", got)
	}
	if got := c.do("TIME"); got != proto.Strings(fmt.Sprint(noon.Unix()), "999000") {
		t.Errorf("TIME: %q", got)
	}
	s.SetTime(noon.Add(time.Second))
	if got := c.do("GET", "k"); got != proto.Nil {
		t.Errorf("GET: %q", got)
	}
}

func TestJumpsMoveTheExpiryOfKeys(t *testing.T) {
	s := start(t)
	c := dial(t, s)
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	s.SetTime(noon)
	c.do("SET", "k", "v", "PX", "10000")
	// Nothing touches the key between these, so what passes before the jump
	// must be counted by the jump itself.
	s.SetTime(noon.Add(4 * time.Second))
	s.SetTime(noon.Add(-time.Hour))
	if got := c.do("PTTL", "k"); got != proto.Int(10_000+3_600_000) {
		t.Errorf("PTTL after a jump back: %q", got)
	}
	s.SetTime(noon.Add(9 * time.Second))
	if got := c.do("PTTL", "k"); got != proto.Int(1000) {
		t.Errorf("PTTL after the jump forward: %q", got)
	}
	s.SetOffset(0)
	if got := c.do("EXISTS", "k"); got != proto.Int(1) {
		t.Errorf("back on the clock of the process: EXISTS %q", got)
	}
	s.SetOffset(time.Until(noon) + time.Minute)
	if got := c.do("EXISTS", "k"); got != proto.Int(0) {
		t.Errorf("a minute past noon: EXISTS %q", got)
	}
	if off := time.Until(s.Now()) - time.Until(noon) - time.Minute; off < -time.Second || off > time.Second {
		t.Errorf("Now is off by %v", off)
	}
}

func TestRestart(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := start(t)
		old := dial(t, s)
		old.do("SET", "k", "v")
		id := s.RunID()
		if err := s.Restart(keep); err != nil {
			t.Fatal(err)
		}
		if s.RunID() == id {
			t.Error("the run_id survived a restart")
		}
		if reply, err := old.Do("PING"); err == nil {
			t.Errorf("a connection survived a restart: %q", reply)
		}
		want := proto.Int(0)
		if keep {
			want = proto.Int(1)
		}
		if got := dial(t, s).do("EXISTS", "k"); got != want {
			t.Errorf("keep=%t: EXISTS %q", keep, got)
		}
	}
}

func TestCloseIsForGood(t *testing.T) {
	s := start(t)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Error("a closed server accepts connections")
	}
	if err := s.Restart(true); err == nil {
		t.Error("a closed server restarted")
	}
}

// The clock and the scripts each have a lock that the other must not wait for.
func TestConcurrentScriptsRestartsAndClockChanges(t *testing.T) {
	s := start(t)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 100 {
				c, err := proto.Dial(s.Addr())
				if err != nil {
					continue // refused during a restart
				}
				_, _ = c.Do("EVAL", "return redis.call('INFO', 'server') .. redis.call('TIME')[1]", "0")
				c.Close()
			}
		})
	}
	for i := range 20 {
		s.SetOffset(time.Duration(i%3) * time.Second)
		if err := s.Restart(i%2 == 0); err != nil {
			t.Error(err)
		}
	}
	clients.Wait()
}

// The client of the library, set up as there, on a subscribing and on a plain
// connection.
func TestRueidis(t *testing.T) {
	s := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	connect := func() rueidis.Client {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{s.Addr()}, PipelineMultiplex: -1,
			AlwaysPipelining: true, DisableRetry: true, DisableCache: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	plain, sub := connect(), connect()
	defer plain.Close()

	got := make(chan string, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() {
		_ = sub.Receive(ctx, sub.B().Subscribe().Channel("wake").Build(), func(m rueidis.PubSubMessage) { got <- m.Message })
	})
	await.True(t, 10*time.Second, "a subscriber", func() bool {
		n, err := plain.Do(ctx, plain.B().Publish().Channel("wake").Message("up").Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	if m := <-got; m != "up" {
		t.Errorf("pushed %q", m)
	}
	id, err := rueidis.NewLuaScript(`return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')`).Exec(ctx, plain, nil, nil).ToString()
	if err != nil || id != s.RunID() {
		t.Errorf("run_id by script: %q, %v", id, err)
	}
	sub.Close()
	receiver.Wait()
}

func start(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// client returns raw replies, and fails the test when there is none.
type client struct {
	*proto.Client
	t *testing.T
}

func dial(t *testing.T, s *embedded.Server) client {
	t.Helper()
	c, err := proto.Dial(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return client{c, t}
}

func (c client) do(command ...string) string {
	c.t.Helper()
	reply, err := c.Do(command...)
	if err != nil {
		c.t.Fatalf("%v: %v", command, err)
	}
	return reply
}
