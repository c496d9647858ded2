package clockshim_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/clockshim"
	"example.com/redlock/testkit/redisserver"
)

// patience is far more than anything here takes on a busy machine.
const patience = 30 * time.Second

func TestTimeFollowsTheClock(t *testing.T) {
	clock, s := start(t)
	for _, change := range []struct {
		what    string
		make    func()
		ahead   time.Duration // of true time, afterwards
		stopped bool
	}{
		{what: "nothing", make: func() {}},
		{what: "a jump forward", make: func() { clock.Jump(60 * time.Second) }, ahead: 60 * time.Second},
		{what: "a jump back", make: func() { clock.Jump(-160 * time.Second) }, ahead: -100 * time.Second},
		{what: "a freeze", make: clock.Freeze, ahead: -100 * time.Second, stopped: true},
		{what: "a jump while frozen", make: func() { clock.Jump(time.Hour) }, ahead: time.Hour - 100*time.Second, stopped: true},
		{what: "a thaw", make: clock.Thaw, ahead: time.Hour - 100*time.Second},
	} {
		change.make()
		seen := follows(t, clock, s)
		// The slack is for what the freeze and a busy machine take.
		if ahead := time.Until(seen); (ahead - change.ahead).Abs() > patience {
			t.Errorf("after %s the server is ahead by %v, want %v", change.what, ahead, change.ahead)
		}
		if again := follows(t, clock, s); again.Equal(seen) != change.stopped {
			t.Errorf("after %s the server shows %v, then %v", change.what, seen, again)
		}
	}
}

func TestTheServerRunsAtTheRate(t *testing.T) {
	const (
		rate  = 1.08
		width = 0.005 // of the interval that the measured rate is known to be in
		slack = 1e-5  // TIME drops fractions of a microsecond, here of 0.1 s and more
	)
	clock, s := start(t)
	clock.Rate(rate)
	c := dial(t, s)

	// The true times at which the server answered lie between two readings.
	before0 := time.Now()
	first := serverTime(t, c)
	after0 := time.Now()
	var least, most float64
	await.True(t, patience, "the rate can be told", func() bool {
		before := time.Now()
		passed := serverTime(t, c).Sub(first)
		after := time.Now()
		least = float64(passed) / float64(after.Sub(before0))
		most = float64(passed) / float64(before.Sub(after0))
		return before.Sub(after0) > 100*time.Millisecond && most-least < width
	})
	if least > rate+slack || most < rate-slack {
		t.Errorf("the rate is between %v and %v, want %v", least, most, rate)
	}
}

// While a script reads the time as fast as it can, the clock changes its rate
// all the time: it goes forward, and never faster than the highest rate.
func TestChangesOfRateAndThawsMakeNoStep(t *testing.T) {
	const highest = 2
	clock, s := start(t)
	c := dial(t, s)
	began, from := time.Now(), serverTime(t, c)
	reply := make(chan string, 1)
	go func() {
		reply <- must(c.Do("EVAL", luaNow+`
			local last, went_back, changed = now(), 0, 0
			for _ = 1, 20000 do
				local t = now()
				if t < last then went_back = went_back + 1 end
				if t > last then changed = changed + 1 end
				last = t
			end
			return {tostring(went_back), tostring(changed)}`, "0"))
	}()
	changes := 0
	for done := false; !done; changes++ {
		clock.Rate(float64(changes % (highest + 1)))
		clock.Freeze()
		clock.Thaw()
		select {
		case got := <-reply:
			counts := strings.Fields(got)
			if len(counts) != 5 || counts[2] != "0" || counts[4] == "0" {
				t.Errorf("went back and forward so many times: %q", counts)
			}
			done = true
		default:
		}
	}
	passed, trulyPassed := serverTime(t, c).Sub(from), time.Since(began)
	if passed > highest*trulyPassed {
		t.Errorf("%v passed on the server in %v: more than %d times as much", passed, trulyPassed, highest)
	}
	t.Logf("%d changes of the rate", changes)
}

func TestKeysExpireByTheClock(t *testing.T) {
	clock, s := start(t)
	c := dial(t, s)
	// What follows is exact because the clock moves only when told to.
	clock.Freeze()
	for _, step := range []struct {
		jump time.Duration
		do   string
		want string
	}{
		{0, "SET k v PX 10000", "+OK\r\n"},
		{9999 * time.Millisecond, "PTTL k", ":1\r\n"},
		{-100 * time.Second, "PTTL k", ":100001\r\n"},
		{100 * time.Second, "GET k", "$1\r\nv\r\n"},
		{time.Second, "GET k", "$-1\r\n"},
		{0, "SET k v PX 20", "+OK\r\n"},
	} {
		clock.Jump(step.jump)
		if got := must(c.Do(strings.Fields(step.do)...)); got != step.want {
			t.Errorf("after a jump by %v, %s: %q, want %q", step.jump, step.do, got, step.want)
		}
	}

	frozen := time.Now()
	await.True(t, patience, "the key's time is over, but for the clock", func() bool {
		return time.Since(frozen) > 100*time.Millisecond
	})
	if got := must(c.Do("PTTL", "k")); got != ":20\r\n" {
		t.Errorf("remaining time in a freeze: %q", got)
	}
	clock.Thaw()
	await.True(t, patience, "the key expires", func() bool { return must(c.Do("GET", "k")) == "$-1\r\n" })
}

// This and the next tests pin what the package comment says of a server.
func TestAScriptOverAJump(t *testing.T) {
	clock, s := start(t, "--slowlog-log-slower-than", strconv.FormatInt(time.Minute.Microseconds(), 10))
	c := dial(t, s)
	reply := make(chan string, 1)
	go func() {
		reply <- must(c.Do("EVAL", luaNow+`
			redis.call('SET', KEYS[1], 'v', 'PX', 1000)
			local began = now()
			while now() < began + 60e6 do end
			redis.call('SET', KEYS[2], 'v', 'PX', 1000)
			local ahead = redis.call('PEXPIRETIME', KEYS[2]) - math.floor(now() / 1000)
			return {redis.call('GET', KEYS[1]), ahead > 900 and ahead <= 1000}`, "2", "old", "new"))
	}()
	// The script cannot say when it has begun.
	await.True(t, patience, "the script has seen a jump", func() bool {
		clock.Jump(time.Minute)
		return len(reply) > 0
	})
	clock.Freeze()
	if got := <-reply; got != "*2\r\n$1\r\nv\r\n:1\r\n" {
		t.Errorf("the script's key was there, and the new one counts from TIME: %q", got)
	}
	if got := must(c.Do("GET", "old")); got != "$-1\r\n" {
		t.Errorf("the key after the script: %q", got)
	}
	ownCounter := strings.Contains(must(c.Do("INFO", "server")), "monotonic_clock:X86 TSC")
	if got := must(c.Do("SLOWLOG", "LEN")); got == ":0\r\n" && !ownCounter {
		t.Error("the server did not take the jump for a slow script")
	}
}

func TestAServerWhoseClockStandsStillGoesOn(t *testing.T) {
	clock, s := start(t, "--busy-reply-threshold", "20")
	clock.Freeze()
	script, other := dial(t, s), dial(t, s)
	reply := make(chan string, 1)
	go func() { reply <- fmt.Sprint(script.Do("EVAL", "while true do end", "0")) }()
	await.True(t, patience, "the server has measured that the script takes long", func() bool {
		return strings.HasPrefix(must(other.Do("PING")), "-BUSY")
	})
	must(other.Do("SCRIPT", "KILL"))
	if got := <-reply; !strings.Contains(got, "killed by user") {
		t.Errorf("the script ended with %q", got)
	}
}

func TestWhatTheServerTakesFromTheTimeOfDay(t *testing.T) {
	clock, s := start(t)
	c := dial(t, s)
	reply := make(chan string, 1)
	go func() { reply <- must(c.Do("BLPOP", "list", "3600")) }()
	other := dial(t, s)
	await.True(t, patience, "a client is blocked", func() bool {
		return strings.Contains(must(other.Do("INFO", "clients")), "blocked_clients:1")
	})
	clock.Jump(2 * time.Hour)
	select {
	case got := <-reply:
		if got != "*-1\r\n" {
			t.Errorf("BLPOP: %q", got)
		}
	case <-time.After(patience):
		t.Error("BLPOP waits on after its hour is over")
	}
	_, uptime, _ := strings.Cut(must(other.Do("INFO", "server")), "uptime_in_seconds:")
	var seconds int
	if _, err := fmt.Sscan(uptime, &seconds); err != nil || time.Duration(seconds)*time.Second < 2*time.Hour {
		t.Errorf("uptime %d s, %v", seconds, err)
	}
}

func TestARestartedServerKeepsItsClock(t *testing.T) {
	clock, s := start(t)
	clock.Jump(-100 * time.Second)
	clock.Freeze()
	want := follows(t, clock, s)
	for _, end := range []func() error{s.Kill, func() error { return nil }} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := follows(t, clock, s); !got.Equal(want) {
			t.Errorf("after a restart the server shows %v, want %v", got, want)
		}
	}
	if clock.Loads() != 3 {
		t.Errorf("%d processes took the clock, want 3", clock.Loads())
	}
}

func TestServersHaveClocksOfTheirOwn(t *testing.T) {
	early, first := start(t)
	late, second := start(t)
	early.Jump(-time.Hour)
	late.Jump(time.Hour)
	if apart := follows(t, late, second).Sub(follows(t, early, first)); (apart - 2*time.Hour).Abs() > patience {
		t.Errorf("the servers are %v apart", apart)
	}
}

// Its threads would spin while the clock is behind.
func TestTheAllocatorHasNoThreads(t *testing.T) {
	_, s := start(t)
	comms, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", s.Pid()))
	if err != nil || len(comms) == 0 {
		t.Fatal(comms, err)
	}
	for _, comm := range comms {
		name, err := os.ReadFile(comm)
		if err != nil || strings.HasPrefix(string(name), "jemalloc") {
			t.Errorf("%s: %q, %v", comm, name, err)
		}
	}
}

// luaNow defines now, TIME in µs.
const luaNow = `
local function now()
	local t = redis.call('TIME')
	return t[1] * 1e6 + t[2]
end
`

func start(t *testing.T, args ...string) (*clockshim.Clock, *redisserver.Server) {
	t.Helper()
	clock := newClock(t)
	return clock, redisserver.StartWith(t, redisserver.Options{Args: args, Clock: clock})
}

// follows checks that TIME, as a command and in a script, lies between two
// readings of the clock, and returns it.
func follows(t *testing.T, clock *clockshim.Clock, s *redisserver.Server) time.Time {
	t.Helper()
	c := dial(t, s)
	var seen time.Time
	for _, command := range [][]string{{"EVAL", "return redis.call('TIME')", "0"}, {"TIME"}} {
		before := clock.Now()
		seen = serverTime(t, c, command...)
		after := clock.Now()
		if seen.Before(before.Truncate(time.Microsecond)) || seen.After(after) {
			t.Errorf("%s shows %v, the clock %v and %v", command[0], seen, before, after)
		}
	}
	return seen
}

// serverTime returns the reply of TIME, or of the command if there is one.
func serverTime(t *testing.T, c *proto.Client, command ...string) time.Time {
	t.Helper()
	if len(command) == 0 {
		command = []string{"TIME"}
	}
	fields, err := proto.ReadStrings(must(c.Do(command...)))
	if err != nil || len(fields) != 2 {
		t.Fatal(fields, err)
	}
	sec, err1 := strconv.ParseInt(fields[0], 10, 64)
	usec, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err1 != nil || err2 != nil || usec < 0 || usec >= 1e6 || sec > math.MaxInt32 {
		t.Fatalf("TIME: %q", fields)
	}
	return time.Unix(sec, usec*1000)
}

func dial(t *testing.T, s *redisserver.Server) *proto.Client {
	t.Helper()
	c, err := proto.Dial(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// must takes an error for a reply that no test wants, since goroutines of a
// test may not end it.
func must(reply string, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return reply
}
