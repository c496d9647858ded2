package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.com/redlock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is one run of the command, with all that it takes from outside.
type app struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	env []string
	// configPaths are the files looked for without --config, the first counts.
	configPaths []string

	flags   nodeFlags
	json    bool
	quiet   bool
	verbose bool
	// said goes to err.
	said    *speaker
	log     *slog.Logger
	reports *nodeReports
}

// main carries out a command line and returns the exit code.
func (a *app) main(args []string) int {
	root := a.rootCommand()
	defer func() { <-a.said.silence() }()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.said)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	a.fail(err)
	if errors.Is(err, errUsage) && !a.json && !a.quiet {
		_, _ = io.WriteString(a.said, "Try '"+cmd.CommandPath()+" --help'.\n")
	}
	return exitCode(err)
}

func (a *app) rootCommand() *cobra.Command {
	a.said = &speaker{w: a.err}
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Run commands under a distributed lock kept by N independent Redis servers",
		Example: `  redlock up                                    # in another terminal: five local nodes to try it with
  redlock run -n backup -- ./backup.sh          # exit 75 if somebody else runs it
  redlock run --demo hello -- sh -c 'echo "$REDLOCK_FENCE"'`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		// With Args set cobra leaves an unknown command to us.
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(*cobra.Command, []string) {
			a.log = newLogger(a.said, a.json, a.level())
			a.reports = &nodeReports{Handler: a.log.Handler(), passing: a.json || a.verbose}
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("redlock {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badFlag(err) })
	flags := root.PersistentFlags()
	flags.SortFlags = false
	a.flags.bind(flags)
	flags.BoolVar(&a.json, "json", false, "one JSON object per line, its fields are in cmd/redlock/README.md")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "say only what went wrong")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "say everything")
	root.AddCommand(
		a.runCommand(), a.acquireCommand(), a.extendCommand(), a.releaseCommand(),
		a.statusCommand(), a.listCommand(), a.breakCommand(), a.upCommand(), a.initCommand(), a.doctorCommand(), a.delayStartCommand(),
		a.completionCommand(), a.versionCommand(),
	)
	return root
}

// exactArgs is cobra.ExactArgs with our exit code.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if err := refuseURLs(args); err != nil {
			return err
		}
		switch {
		case len(args) == len(names):
			return nil
		case len(names) == 0:
			return usagef("unexpected argument %q", args[0])
		}
		return usagef("expected %s, got %d arguments", strings.Join(names, " "), len(args))
	}
}

// refuseURLs refuses nodes where a NAME is expected. As the name of a lock a URL
// would be printed, and stored on the nodes, with its password.
func refuseURLs(args []string) error {
	for _, arg := range args {
		scheme, _, _ := strings.Cut(strings.ToLower(arg), "://")
		if len(scheme) < len(arg) && slices.Contains([]string{"redis", "rediss", "unix"}, scheme) {
			return usagef("the URL of a node is no NAME: separate nodes with commas, after --nodes")
		}
	}
	return nil
}

// badFlag is an error of parsing flags, without the words of package strconv.
func badFlag(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return usagef("%v", err)
	}
	why := errors.Unwrap(bad).Error()
	if num, ok := errors.AsType[*strconv.NumError](err); ok {
		what := "a whole number"
		switch {
		case num.Func == "ParseBool":
			what = "true or false"
		case errors.Is(num, strconv.ErrRange):
			what = "in range"
		}
		why = fmt.Sprintf("%q is not %s", bad.GetValue(), what)
	}
	return usagef("--%s: %s", bad.GetFlag().Name, why)
}

// emit writes one JSON object to stdout.
func (a *app) emit(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// closeWait bounds how long the command stays to tidy up on the nodes.
const closeWait = 5 * time.Second

// close ends the work of lk in the background, such as the undo of an attempt.
func (a *app) close(lk *redlock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := lk.Close(ctx); err != nil {
		a.log.Warn("close", "error", err)
	}
}

// withLocker opens the configured nodes for fn, which a signal interrupts.
func (a *app) withLocker(cmd *cobra.Command, fn func(context.Context, *redlock.Locker, config) error) error {
	c, err := a.configure(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	lk, err := a.open(ctx, c)
	if err != nil {
		return err
	}
	defer a.close(lk)
	if err := fn(ctx, lk, c); err != nil {
		return interrupted(ctx, err)
	}
	a.reports.pass()
	return nil
}

// interrupted returns err, or the signal that was behind it.
func interrupted(ctx context.Context, err error) error {
	if sig, ok := errors.AsType[signalled](context.Cause(ctx)); ok && err != nil {
		return sig
	}
	return err
}

// open opens the nodes of c. What it cannot make sense of is, seen from here,
// configuration.
func (a *app) open(ctx context.Context, c config) (*redlock.Locker, error) {
	if len(c.Nodes) == 0 {
		return nil, configf("no nodes: give their URLs with --nodes, in REDLOCK_NODES or in redlock.yaml " +
			"('redlock up' starts some to try it with, and 'redlock run --demo' needs none)")
	}
	lk, err := redlock.Open(ctx, c.Nodes, c.options(slog.New(a.reports)))
	if errors.Is(err, redlock.ErrBadOption) {
		return nil, configf("%s", strings.TrimPrefix(err.Error(), "redlock: "))
	}
	return lk, err
}

// interruptible returns a context that ends, with cause signalled, at a signal
// that ends a process.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	notify(signals, endSignals...)
	stopped := make(chan struct{})
	go func() {
		select {
		case sig := <-signals:
			cancel(signalled(sig.(syscall.Signal)))
		case <-stopped:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		cancel(nil)
	}
}

// notify is signal.Notify without the signals that whoever started us wants
// ignored, as nohup(1) does with HUP.
func notify(c chan<- os.Signal, signals ...os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// surviveBrokenPipes turns the death by writing to a reader that has gone away
// into an error of the write: we have a lock to give back.
func surviveBrokenPipes() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}
