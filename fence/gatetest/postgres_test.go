//go:build linux

package gatetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"example.com/redlock/testkit/await"
)

// server is the PostgreSQL of all tests of this package, started by the first
// that needs it and stopped by TestMain.
var server struct {
	sync.Mutex
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
	dsn   string
}

// postgres starts the server if it does not run, and opens a database of its own
// for t.
func postgres(t *testing.T) *sql.DB {
	t.Helper()
	server.Lock()
	defer server.Unlock()
	if server.cmd == nil {
		if err := startPostgres(); err != nil {
			t.Fatal(err)
		}
		admin := openDB(t, "pgx", server.dsn+"/postgres?connect_timeout=2")
		await.True(t, time.Minute, "PostgreSQL answers", func() bool { return admin.Ping() == nil })
	}
	admin := openDB(t, "pgx", server.dsn+"/postgres")
	name := fmt.Sprintf("t%d", time.Now().UnixNano())
	if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return openDB(t, "pgx", server.dsn+"/"+name)
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// program finds a server program of PostgreSQL, which Debian does not put on
// PATH.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.EvalSymlinks(path)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%s is not installed: see scripts/install-deps.sh", name)
	}
	return found[len(found)-1], nil
}

func startPostgres() error {
	bin, err := program("postgres")
	if err != nil {
		return err
	}
	if server.dir, err = os.MkdirTemp("", "redlock-postgres-"); err != nil {
		return err
	}
	attr, err := unprivileged(server.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(server.dir, "data")
	initdb := exec.Command(filepath.Join(filepath.Dir(bin), "initdb"), "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
	initdb.SysProcAttr, initdb.Dir = attr, server.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	cmd := exec.Command(bin, "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=60")
	cmd.SysProcAttr, cmd.Dir = attr, server.dir
	log, err := os.Create(filepath.Join(server.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if server.ended, err = start(cmd); err != nil {
		return err
	}
	server.cmd, server.dsn = cmd, fmt.Sprintf("postgres://test@127.0.0.1:%d", port)
	return nil
}

// start starts cmd, which dies with this process if its SysProcAttr says so. The
// kernel ties that death to the thread that starts the command: so the goroutine
// that does keeps its thread until ended is closed.
func start(cmd *exec.Cmd) (ended chan struct{}, err error) {
	ended = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ends is not looked at
			close(ended)
		}
	}()
	return ended, <-started
}

// unprivileged lets a process run as somebody who may run the server, which
// refuses root, and gives dir to them.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, errors.Join(err1, err2, os.Chown(dir, uid, gid))
}

func stopPostgres() error {
	server.Lock()
	defer server.Unlock()
	if server.dir == "" {
		return nil
	}
	var err error
	if server.cmd != nil {
		err = server.cmd.Process.Signal(syscall.SIGQUIT) // at once
		<-server.ended
	}
	return errors.Join(err, os.RemoveAll(server.dir))
}

// bounded is a context for what must not take for ever.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func hasCode(err error, code string) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && strings.HasPrefix(state.SQLState(), code)
}
