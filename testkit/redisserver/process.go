package redisserver

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
	"time"
)

// process is a started command and the news of its end.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone and reaped
}

// spawn starts cmd so that it dies with this process.
//
// The kernel ties that death to the thread that started the command, not to the
// process, and the runtime ends threads as it likes. So the goroutine that
// starts the command keeps its thread until the command has ended.
func spawn(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = sysProcAttr()
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(p.exited)
		}
	}()
	return p, <-started
}

// ready returns nil once the server answers on its socket.
func (p *process) ready(ctx context.Context, socket string) error {
	const pause = 2 * time.Millisecond
	for {
		if answers(ctx, socket) {
			return nil
		}
		select {
		case <-p.exited:
			return errors.New("the server ended at once")
		case <-ctx.Done():
			return fmt.Errorf("no answer from the server: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// answers tells whether a server on the socket replies to PING, be it to ask
// for a password.
func answers(ctx context.Context, socket string) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && (strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH"))
}

func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("redisserver: kill process %d: %w", p.cmd.Process.Pid, err)
	}
	<-p.exited
	return nil
}

// terminate asks the process to end and kills it if it does not.
func (p *process) terminate() error {
	// A frozen process notices the request only when it is thawed.
	for _, sig := range []os.Signal{sigTerminate, sigThaw} {
		if err := p.cmd.Process.Signal(sig); err != nil {
			return p.kill()
		}
	}
	patience := time.NewTimer(stopTimeout)
	defer patience.Stop()
	select {
	case <-p.exited:
		return nil
	case <-patience.C:
		return p.kill()
	}
}
