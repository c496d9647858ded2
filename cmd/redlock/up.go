package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"example.com/redlock"
	"example.com/redlock/testkit/embedded"
	"example.com/redlock/testkit/redisserver"
	"github.com/spf13/cobra"
)

// upLine is what up prints with --json.
type upLine struct {
	Nodes  []string `json:"nodes"`
	Engine string   `json:"engine"`
}

func (a *app) upCommand() *cobra.Command {
	var (
		nodes, port int
		engine      string
	)
	cmd := &cobra.Command{
		Use:   "up [flags]",
		Short: "Run local nodes until interrupted",
		Long: `Starts nodes on this machine, declares them new, prints REDLOCK_NODES=URLS on
standard output, and ends them at ^C or TERM. They keep nothing on disk. A node
that ends before that is reported at once; the others go on, and the exit code is
125 then. When none is left, up ends.`,
		Example: `  redlock up                             # in another terminal; paste the line that it prints:
  export REDLOCK_NODES=redis://127.0.0.1:7101,...

  redlock up >nodes.env &                # the same in a script
  until [ -s nodes.env ]; do sleep 0.1; done
  export $(cat nodes.env)
  ...
  kill $!`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case nodes < 1:
				return usagef("--nodes must be above zero")
			case port < 1 || port > maxPort-nodes+1:
				return usagef("--port %d: the ports of %d nodes must lie between 1 and %d", port, nodes, maxPort)
			}
			return a.up(cmd, engine, nodes, port)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	// Here --nodes is a number: the URLs are what comes out.
	flags.IntVar(&nodes, "nodes", 5, "start `N` nodes")
	flags.IntVar(&port, "port", 7101, "port of the first; the others follow")
	flags.StringVar(&engine, "engine", "auto", "redis, embedded, or auto: redis if it is installed")
	return cmd
}

func (a *app) up(cmd *cobra.Command, engine string, n, port int) error {
	c, err := a.configure(func(flag string) bool { return flag != "nodes" && cmd.Flags().Changed(flag) })
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	if engine == "auto" {
		engine = "redis"
		if _, err := redisserver.Find(); err != nil {
			engine = "embedded"
		}
	}
	nodes, err := startNodes(ctx, engine, n, port)
	defer nodes.stop()
	if err != nil {
		return interrupted(ctx, suggestPort(err, port+len(nodes.urls)))
	}
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch() // before they are stopped
	allEnded := a.watch(watching, nodes.servers)
	c.Nodes = nodes.urls
	if err := a.declare(ctx, c); err != nil {
		return interrupted(ctx, err)
	}
	if a.json {
		err = a.emit(upLine{nodes.urls, engine})
	} else {
		_, err = fmt.Fprintf(a.out, "REDLOCK_NODES=%s\n", strings.Join(nodes.urls, ","))
	}
	if err != nil {
		return err
	}
	a.log.Info("up", "engine", engine, "nodes", n)
	select {
	case <-ctx.Done(): // the interruption is how it ends well
	case <-allEnded:
	}
	return endedEarly(nodes.servers)
}

// watch says of each server, until ctx ends, that it has ended by itself. The
// channel that it returns is closed when none is left.
func (a *app) watch(ctx context.Context, servers []*redisserver.Server) <-chan struct{} {
	allEnded := make(chan struct{})
	if len(servers) == 0 {
		return allEnded
	}
	var left atomic.Int64
	left.Store(int64(len(servers)))
	for _, s := range servers {
		go func() {
			select {
			case <-ctx.Done():
			case <-s.Ended():
			}
			if ctx.Err() != nil {
				return
			}
			a.log.Error("node ended", "node", s.Addr(), "pid", s.Pid(), "how", s.HowEnded())
			if left.Add(-1) == 0 {
				close(allEnded)
			}
		}()
	}
	return allEnded
}

// endedEarly is an error if servers that are to be ended now are gone already.
func endedEarly(servers []*redisserver.Server) error {
	var gone []string
	for _, s := range servers {
		if !s.Alive() {
			gone = append(gone, s.Addr())
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d nodes ended by themselves: %s", len(gone), len(servers), strings.Join(gone, ", "))
}

const maxPort = 65535

// suggestPort says what to do about err, with which a node did not start, if it
// is because its port is taken.
func suggestPort(err error, port int) error {
	if errors.Is(err, errUsage) {
		return err
	}
	l, taken := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if taken == nil {
		_ = l.Close() // it was for the answer only
		return err
	}
	return fmt.Errorf("port %d cannot be had, choose others with --port: %w", port, err)
}

// declare declares the nodes of c new.
func (a *app) declare(ctx context.Context, c config) error {
	lk, err := a.open(ctx, c)
	if err != nil {
		return err
	}
	defer a.close(lk)
	if _, err := lk.Init(ctx, nil); err != nil {
		return err
	}
	a.reports.pass()
	return nil
}

// localNodes are nodes that live as long as this process at most.
type localNodes struct {
	urls    []string
	stops   []func() error
	servers []*redisserver.Server // those that are processes of their own
}

// startNodes starts n nodes, on ports from port on, or on free ones if it is 0.
// What has been started is returned also with an error.
func startNodes(ctx context.Context, engine string, n, port int) (*localNodes, error) {
	nodes := &localNodes{}
	for i := range n {
		at := 0
		if port != 0 {
			at = port + i
		}
		switch engine {
		case "redis":
			s, err := redisserver.Start(ctx, redisserver.Options{Port: at})
			if err != nil {
				return nodes, err
			}
			nodes.add(s.URL(), s.Stop)
			nodes.servers = append(nodes.servers, s)
		case "embedded":
			s, err := embedded.Start(embedded.Options{Port: at})
			if err != nil {
				return nodes, err
			}
			nodes.add(s.URL(), s.Close)
		default:
			return nodes, usagef("--engine is %q, not auto, redis or embedded", engine)
		}
	}
	return nodes, nil
}

func (ns *localNodes) add(url string, stop func() error) {
	ns.urls = append(ns.urls, url)
	ns.stops = append(ns.stops, stop)
}

func (ns *localNodes) stop() error {
	var errs []error
	for _, stop := range slices.Backward(ns.stops) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// demoNodes is how many nodes a demo has.
const demoNodes = 5

// demoLocker opens nodes inside this process.
func (a *app) demoLocker(ctx context.Context, c config) (*redlock.Locker, func(), error) {
	nodes, err := startNodes(ctx, "embedded", demoNodes, 0)
	if err != nil {
		return nil, nil, errors.Join(err, nodes.stop())
	}
	c.Nodes = nodes.urls
	lk, err := a.open(ctx, c)
	if err == nil {
		if _, err = lk.Init(ctx, nil); err != nil {
			a.close(lk)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, nodes.stop())
	}
	a.log.Warn(fmt.Sprintf("demo: %d nodes inside this process, which exclude nobody else", demoNodes))
	return lk, func() {
		a.close(lk)
		_ = nodes.stop() // they end with us
	}, nil
}
