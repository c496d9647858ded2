package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// packages is the folder with the npm packages at the versions in
// package-lock.json, installed once for all tests.
var packages = sync.OnceValues(installPackages)

var packagesDir string // empty if nothing was installed

const installWithin = 2 * time.Minute

// installPackages runs none of the packages' own install scripts.
func installPackages() (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is not on PATH (`make test` installs nodejs and npm): %w", tool, err)
		}
	}
	dir, err := os.MkdirTemp("", "redlock-interop-")
	if err != nil {
		return "", err
	}
	packagesDir = dir
	for _, name := range []string{"package.json", "package-lock.json", "worker.js"} {
		text, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), installWithin)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
	npm.Dir = dir
	if said, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, said)
	}
	return dir, nil
}

func removePackages() error {
	if packagesDir == "" {
		return nil
	}
	return os.RemoveAll(packagesDir)
}

// jitter is the pause of rivals between attempts, shorter than their defaults so
// that a few seconds of contention are many attempts.
func jitter() time.Duration { return 5*time.Millisecond + rand.N(10*time.Millisecond) }

// nodeClient is a process of Node.js that runs worker.js.
type nodeClient struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when there is no more output

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
}

type request struct {
	ID     int    `json:"id"`
	Op     string `json:"op"`
	Name   string `json:"name,omitempty"`
	TTL    int64  `json:"ttl,omitempty"` // ms
	Handle string `json:"handle,omitempty"`
}

type reply struct {
	ID      int
	Handle  string
	At      instant `json:",string"`
	Until   instant `json:",string"`
	Refused bool
	Error   string
}

func openNode(t *testing.T, addrs []string) client {
	t.Helper()
	dir, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	c := &nodeClient{waiting: make(map[int]chan reply), ended: make(chan struct{})}
	c.cmd = exec.Command("node", "worker.js", strings.Join(addrs, ","))
	c.cmd.Dir, c.cmd.Stderr = dir, os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.in, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go c.read(out)
	return c
}

func (c *nodeClient) read(out io.Reader) {
	defer close(c.ended)
	for s := bufio.NewScanner(out); s.Scan(); {
		var r reply
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			r.Error = err.Error()
		}
		c.mu.Lock()
		to := c.waiting[r.ID]
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		if to != nil {
			to <- r
		}
	}
}

// ask sends a request. When ctx ends it asks to stop, and still waits for the
// reply: the lock may have been had.
func (c *nodeClient) ask(ctx context.Context, r request) (reply, error) {
	to := make(chan reply, 1)
	if err := c.send(&r, to); err != nil {
		return reply{}, err
	}
	done := ctx.Done()
	for {
		select {
		case answer := <-to:
			switch {
			case answer.Error != "":
				return answer, errors.New(answer.Error)
			case answer.Refused && ctx.Err() != nil:
				return answer, ctx.Err()
			case answer.Refused:
				return answer, errRefused
			}
			return answer, nil
		case <-done:
			done = nil
			if err := c.send(&request{Op: "stop", Handle: strconv.Itoa(r.ID)}, make(chan reply, 1)); err != nil {
				return reply{}, err
			}
		case <-c.ended:
			return reply{}, errors.New("the process of Node.js has ended")
		}
	}
}

func (c *nodeClient) send(r *request, to chan reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	r.ID = c.last
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	c.waiting[r.ID] = to
	_, err = c.in.Write(append(line, '\n'))
	return err
}

func (c *nodeClient) lock(ctx context.Context, op, name string, ttl time.Duration) (held, error) {
	r, err := c.ask(ctx, request{Op: op, Name: name, TTL: ttl.Milliseconds()})
	if err != nil {
		return nil, err
	}
	return &nodeLock{c: c, handle: r.Handle, ttl: ttl, had: r.At, end: r.Until}, nil
}

func (c *nodeClient) try(name string, ttl time.Duration) (held, error) {
	return c.lock(context.Background(), "try", name, ttl)
}

func (c *nodeClient) wait(ctx context.Context, name string, ttl time.Duration) (held, error) {
	return c.lock(ctx, "wait", name, ttl)
}

func (c *nodeClient) close() {
	_ = c.in.Close()
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.kill()
	}
	_ = c.cmd.Wait() // killed or not, it is gone
}

// kill ends the process without giving it time to do anything.
func (c *nodeClient) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

type nodeLock struct {
	c        *nodeClient
	handle   string
	ttl      time.Duration
	had, end instant
}

func (h *nodeLock) from() instant  { return h.had }
func (h *nodeLock) until() instant { return h.end }

func (h *nodeLock) extend() error {
	r, err := h.c.ask(context.Background(), request{Op: "extend", Handle: h.handle, TTL: h.ttl.Milliseconds()})
	if err == nil {
		h.end = r.Until
	}
	return err
}

func (h *nodeLock) release() (instant, error) {
	r, err := h.c.ask(context.Background(), request{Op: "release", Handle: h.handle})
	return r.At, err
}

func TestMissingNodeIsAFailureThatSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := installPackages(); err == nil || !strings.Contains(err.Error(), "`make test` installs nodejs and npm") {
		t.Errorf("without node: %v", err)
	}
}

// TestPackagesArePinned: every machine gets the same packages, byte by byte, from
// wherever its npm is set up to get them.
func TestPackagesArePinned(t *testing.T) {
	var lock struct {
		Packages map[string]struct{ Version, Integrity, Resolved string }
	}
	text, err := os.ReadFile("package-lock.json")
	if err == nil {
		err = json.Unmarshal(text, &lock)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if name != "" && (p.Version == "" || p.Integrity == "") {
			t.Errorf("%s is not pinned", name)
		}
		if p.Resolved != "" {
			t.Errorf("%s names where it was got", name)
		}
	}
	if len(lock.Packages) < 3 {
		t.Errorf("%d packages", len(lock.Packages))
	}
}
