package redisserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"go.uber.org/goleak"

	"example.com/redlock/testkit/await"
	"example.com/redlock/testkit/redisserver"
)

// keeperEnv makes the test binary start a server and then wait to be killed.
const keeperEnv = "REDISSERVER_TEST_KEEPER"

func TestMain(m *testing.M) {
	if os.Getenv(keeperEnv) != "" {
		keepServer()
		return
	}
	goleak.VerifyTestMain(m)
}

func keepServer() {
	s, err := redisserver.Start(context.Background(), redisserver.Options{})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(s.Addr())
	select {}
}

func Example() {
	ctx := context.Background()
	s, err := redisserver.Start(ctx, redisserver.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Stop()

	_ = s.Kill()
	fmt.Println("alive after a power cut:", s.Alive())
	_ = s.Restart(ctx)
	fmt.Println("alive after a restart:", s.Alive())
	// Output:
	// alive after a power cut: false
	// alive after a restart: true
}

func TestStartedServersAnswerOnPortsOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range redisserver.StartN(t, 3) {
		if seen[s.Addr()] {
			t.Errorf("two servers on %s", s.Addr())
		}
		seen[s.Addr()] = true
		if got := do(t, s.Addr(), "PING"); got != "+PONG\r\n" {
			t.Errorf("PING: %q", got)
		}
		if want := fmt.Sprintf("process_id:%d\r\n", s.Pid()); !strings.Contains(do(t, s.Addr(), "INFO", "server"), want) {
			t.Errorf("the server on %s is not process %d", s.Addr(), s.Pid())
		}
		if want := "redis://" + s.Addr(); s.URL() != want {
			t.Errorf("URL %q, want %q", s.URL(), want)
		}
	}
}

func TestRestartForgets(t *testing.T) {
	s := redisserver.StartN(t, 1)[0]
	for _, end := range []func() error{s.Kill, func() error { return nil }} {
		do(t, s.Addr(), "SET", "k", "v")
		addr := s.Addr()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.Addr() != addr {
			t.Errorf("moved from %s to %s", addr, s.Addr())
		}
		if got := do(t, addr, "GET", "k"); got != "$-1\r\n" {
			t.Errorf("GET after restart: %q", got)
		}
	}
}

func TestRestartKeepsWhatTheArgumentsMakePersist(t *testing.T) {
	s := redisserver.StartN(t, 1, "--appendonly", "yes", "--appendfsync", "always")[0]
	do(t, s.Addr(), "SET", "k", "v")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := do(t, s.Addr(), "GET", "k"); got != "$1\r\nv\r\n" {
		t.Errorf("GET after restart: %q", got)
	}
}

func TestFrozenServerTakesDataAndAnswersOnceThawed(t *testing.T) {
	s := redisserver.StartN(t, 1)[0]
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a frozen server answered: %d bytes, %v", n, err)
	}
	select {
	case <-s.Ended():
		t.Error("a frozen server is not dead")
	default:
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "+PONG\r\n" {
		t.Errorf("after thaw: %q, %v", line, err)
	}
}

func TestAFrozenServerCanBeStopped(t *testing.T) {
	s := redisserver.StartN(t, 1)[0]
	if err := errors.Join(s.Freeze(), s.Stop(), s.Stop()); err != nil {
		t.Fatal(err)
	}
	if s.Alive() {
		t.Error("alive after Stop")
	}
	<-s.Ended()
	if how := s.HowEnded(); how == "" {
		t.Error("it is not known how it ended")
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a stopped server restarted")
	}
	if err := s.Freeze(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("freezing a dead server: %v", err)
	}
}

func TestStopRemovesTheTemporaryDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := redisserver.Start(t.Context(), redisserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	taken := redisserver.StartN(t, 1)[0]
	var port int
	if _, err := fmt.Sscanf(taken.Addr(), "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]redisserver.Options{
		"port is taken": {Port: port},
		"no-such-flag":  {Args: []string{"--no-such-flag", "x"}},
	} {
		if _, err := redisserver.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start with %+v: %v, want %q in it", o, err, want)
		}
	}
}

func TestAServerThatDoesNotReadItsClockDoesNotStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := redisserver.Start(t.Context(), redisserver.Options{Clock: unread{}})
	if err == nil || !strings.Contains(err.Error(), "does not read the clock") ||
		!strings.Contains(err.Error(), "/no/such/library.so") { // what the loader says
		t.Errorf("start: %v", err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// unread is a clock that no process gets to read.
type unread struct{}

func (unread) Env() []string { return []string{"LD_PRELOAD=/no/such/library.so"} }

func (unread) Loads() int { return 0 }

func TestWithoutABinaryTheTestFails(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := redisserver.Find(); !errors.Is(err, redisserver.ErrNotInstalled) {
		t.Errorf("Find: %v", err)
	}
	rec := &recorder{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { redisserver.StartN(rec, 1) })
	wg.Wait()
	if !strings.Contains(rec.fatal, "make test") {
		t.Errorf("StartN failed with %q", rec.fatal)
	}
}

func TestServerDiesWithAKilledParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir() // what the killed parent cannot clean up
	keeper := exec.Command(self)
	keeper.Env = append(os.Environ(), keeperEnv+"=1", "TMPDIR="+tmp)
	out, err := keeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimSpace(line)
	if got := do(t, addr, "PING"); got != "+PONG\r\n" {
		t.Fatalf("PING: %q", got)
	}
	if err := keeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = keeper.Wait()
	await.True(t, 10*time.Second, "the server is gone", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// do sends one command on a connection of its own and returns the raw reply.
func do(t *testing.T, addr string, command ...string) string {
	t.Helper()
	c, err := proto.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reply, err := c.Do(command...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// recorder keeps the message of Fatal, and ends the goroutine as testing.T does.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) {
	r.fatal = fmt.Sprintln(args...)
	runtime.Goexit()
}
