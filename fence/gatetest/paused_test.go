//go:build linux

package gatetest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/redlock"
	"example.com/redlock/fence"
	"example.com/redlock/fence/filegate"
	"example.com/redlock/fence/httpgate"
	"example.com/redlock/fence/memgate"
	"example.com/redlock/fence/redisgate"
	"example.com/redlock/fence/sqlgate"
	"example.com/redlock/testkit/redisserver"
)

// The test binary is also the holder whose process is stopped.
const (
	roleEnv  = "REDLOCK_GATE_ROLE"
	nodesEnv = "REDLOCK_GATE_NODES"
	redisEnv = "REDLOCK_GATE_REDIS"
	urlEnv   = "REDLOCK_GATE_URL"
	dsnEnv   = "REDLOCK_GATE_DSN"
	pathEnv  = "REDLOCK_GATE_PATH"

	name = "stock"
	ttl  = time.Second
)

// places is where the resources are: one in Redis, behind HTTP (in memory, behind
// memgate), in PostgreSQL and in a file.
type places struct{ redis, url, dsn, path string }

// opened is all gates, opened, and how to write through each.
type opened map[string]func(context.Context, string) error

// connections are what the gates stand on.
type connections struct {
	redis conn
	db    *sql.DB
}

func (p places) connect() (c connections, err error) {
	if c.redis, err = dial(p.redis); err == nil {
		c.db, err = sql.Open("pgx", p.dsn)
	}
	return c, err
}

// open opens every gate with token and reads through it.
func (p places) open(ctx context.Context, c connections, token fence.Token) (opened, error) {
	g, err := redisgate.New(c.redis, name)
	if err != nil {
		return nil, err
	}
	rw, err1 := g.Open(ctx, token)
	fw, err2 := filegate.New(p.path).Open(ctx, token)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	db := c.db
	gate, client := sqlgate.New(nil), httpgate.Open(nil, name, token)
	write := opened{
		"redis": func(ctx context.Context, v string) error {
			_, err := rw.Do(ctx, "SET", "{"+name+"}", v)
			return err
		},
		"file": func(ctx context.Context, v string) error { return fw.WriteFile(ctx, []byte(v)) },
		"sql": func(ctx context.Context, v string) error {
			return gate.Do(ctx, db, name, token, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE stock SET value = $1", v)
				return err
			})
		},
		"http": func(ctx context.Context, v string) error { return request(ctx, client, http.MethodPut, p.url, v) },
	}
	_, err = rw.Do(ctx, "GET", "{"+name+"}")
	_, err2 = fw.ReadFile(ctx)
	err3 := gate.Do(ctx, db, name, token, func(tx *sql.Tx) error {
		_, err := readStock(tx)
		return err
	})
	return write, errors.Join(err, err2, err3, request(ctx, client, http.MethodGet, p.url, ""))
}

func request(ctx context.Context, c *http.Client, method, url, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := httpgate.Refused(resp); err != nil || resp.StatusCode == http.StatusOK {
		return err
	}
	return errors.New(resp.Status)
}

// play takes the lock, opens the gates, and when the process has been stopped
// for long, prints what the lease says and what becomes of its writes.
func play() int {
	if err := hold(); err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

func hold() error {
	ctx := context.Background()
	p := places{os.Getenv(redisEnv), os.Getenv(urlEnv), os.Getenv(dsnEnv), os.Getenv(pathEnv)}
	lk, err := openLocker(ctx, strings.Split(os.Getenv(nodesEnv), ","))
	if err != nil {
		return err
	}
	l, err := lk.Acquire(ctx, name, &redlock.AcquireOptions{TTL: ttl})
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	write, err := p.open(ctx, c, l.Token())
	if err != nil {
		return err
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	last := time.Now() // before the line that lets the process be stopped
	fmt.Println("holds", l.Token())
	for now := last; now.Sub(last) < 2*ttl; now = time.Now() {
		last = now
		<-ticker.C
	}
	for what, w := range write {
		// The holder ought to have looked at its context. It does not.
		fmt.Println(what, "refused:", errors.Is(w(ctx, "late"), fence.ErrStale))
	}
	return nil
}

func openLocker(ctx context.Context, nodes []string) (*redlock.Locker, error) {
	lk, err := redlock.Open(ctx, nodes, &redlock.Options{NodeTimeout: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = lk.Init(ctx, nil) // they are new, at first
	}
	return lk, err
}

// TestB26StoppedProcess: a holder's process is stopped for three TTLs. Another
// takes the lock and opens the gates. The first one's writes, through each of
// them, are refused.
func TestB26StoppedProcess(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	nodes := redisserver.StartN(t, 4)
	var urls []string
	for _, s := range nodes {
		urls = append(urls, s.URL())
	}
	p, urls := places{redis: nodes[3].Addr(), path: filepath.Join(t.TempDir(), "stock")}, urls[:3]
	db := postgres(t)
	for _, s := range []string{sqlgate.Schema, "CREATE TABLE stock (value TEXT)", "INSERT INTO stock VALUES ('10')"} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	var dbname string
	if err := db.QueryRow("SELECT current_database()").Scan(&dbname); err != nil {
		t.Fatal(err)
	}
	p.dsn = server.dsn + "/" + dbname
	p.url = serveStock(t)
	if err := os.WriteFile(p.path, []byte("10"), 0o600); err != nil {
		t.Fatal(err)
	}

	holder, out := stoppable(t, urls, p)
	if text := readLine(t, out); !strings.HasPrefix(text, "holds ") {
		t.Fatal(text)
	}
	if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	lk, err := openLocker(ctx, urls)
	if err != nil {
		t.Fatal(err)
	}
	defer lk.Close(ctx)
	l, err := lk.Acquire(ctx, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.redis.Close()
	defer c.db.Close()
	write, err := p.open(ctx, c, l.Token())
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(stopped.Add(3 * ttl)))
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range write {
		if text := readLine(t, out); !strings.HasSuffix(text, " refused: true") {
			t.Errorf("the first holder: %s", text)
		}
	}
	for what, w := range write {
		if err := w(ctx, "7"); err != nil {
			t.Errorf("%s: the second holder: %v", what, err)
		}
	}
}

// serveStock keeps one value behind a gate in memory and one in front of it.
func serveStock(t *testing.T) string {
	stock := memgate.New("10")
	g, err := httpgate.New(func(*http.Request) string { return name }, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		claim, _ := httpgate.ClaimOf(r.Context())
		inner, err := stock.Open(r.Context(), claim.Token)
		if err == nil && r.Method == http.MethodPut {
			err = inner.Do(r.Context(), func(v *string) error { *v = string(body); return nil })
		}
		if err != nil {
			t.Error(err)
		}
	})))
	t.Cleanup(func() {
		s.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return s.URL
}

func stoppable(t *testing.T, nodes []string, p places) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=hold", nodesEnv+"="+strings.Join(nodes, ","),
		redisEnv+"="+p.redis, urlEnv+"="+p.url, dsnEnv+"="+p.dsn, pathEnv+"="+p.path)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = in
	ended, err := start(cmd)
	if err := errors.Join(err, in.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = out.Close()
	})
	return cmd, bufio.NewReader(out)
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", text, err)
	}
	return strings.TrimSpace(text)
}
