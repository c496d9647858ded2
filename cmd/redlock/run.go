package main

import (
	"strings"
	"time"

	"example.com/redlock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runFlags are the flags of run.
type runFlags struct {
	takeFlags
	maxHold seconds
	minHold seconds
	grace   seconds
	ifHeld  string
	demo    bool
}

// plan is what run was asked to do, checked.
type plan struct {
	name    string
	command []string
	acquire *redlock.AcquireOptions
	grace   time.Duration
	minHold time.Duration
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] NAME [--] COMMAND [ARG...]",
		Short: "Take a lock, run a command, give the lock back",
		Long: `Takes the lock NAME, runs COMMAND without a shell, renews the lock while it
runs, and gives it back. If the lock cannot be kept, the command and its process
group are stopped before anybody else can hold it: TERM, then KILL after --grace.
The command finds REDLOCK_FENCE, the fencing token, in its environment.

Exit code: the command's, or
` + exitHelp(),
		Example: `  redlock run nightly -- pg_dump -f /backup/db.sql db
  redlock run -w 30 deploy ./deploy.sh
  redlock run -n --if-held skip --min-hold 1m report -- ./report   # from cron, on every host`,
		Args: func(_ *cobra.Command, args []string) error {
			return checkRunArgs(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd, &f, args[0], runArgs(args))
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func (f *runFlags) bind(flags *pflag.FlagSet) {
	f.takeFlags.bind(flags)
	flags.SetInterspersed(false) // what follows NAME belongs to the command
	flags.Var(&f.maxHold, "max-hold", "stop the command after so long, exit 124 (default never)")
	flags.Var(&f.minHold, "min-hold", "keep the lock at least so long after it was taken, even if the command ends")
	flags.Var(&f.grace, "grace", "time from TERM to KILL, at most TTL/3 (default TTL/6, at most 5s)")
	flags.StringVar(&f.ifHeld, "if-held", "fail", "fail, or skip: exit 0 when the lock is held by others")
	flags.BoolVar(&f.demo, "demo", false, "use five nodes inside this process: excludes nobody else")
}

func checkRunArgs(args []string) error {
	if len(args) < 1 || len(runArgs(args)) < 1 {
		return usagef("expected NAME and COMMAND")
	}
	if err := refuseURLs(args[:1]); err != nil {
		return err
	}
	if args[1] != "--" && strings.HasPrefix(args[1], "-") {
		// A flag of ours, more likely than the name of a command.
		return usagef("flags go before NAME, and a -- before a command such as %q", args[1])
	}
	return nil
}

// minRunTTL leaves room for a renewal before the command has to be stopped.
const minRunTTL = 100 * time.Millisecond

// runArgs returns the command, without the -- that may stand before it.
func runArgs(args []string) []string {
	if len(args) > 1 && args[1] == "--" {
		return args[2:]
	}
	return args[1:]
}

func (a *app) run(cmd *cobra.Command, f *runFlags, name string, command []string) error {
	set := cmd.Flags().Changed
	c, err := a.configure(set)
	if err != nil {
		return err
	}
	p, err := f.plan(set, c, a.env, name, command)
	if err != nil {
		return err
	}
	err = a.execute(cmd.Context(), p, c, f.demo)
	if f.ifHeld == "skip" && held(err) {
		a.log.Info("skipped", "name", name)
		return nil
	}
	return f.conflicted(err)
}

// plan checks the flags and fills in the defaults.
func (f *runFlags) plan(set func(string) bool, c config, env []string, name string, command []string) (plan, error) {
	o, err := f.options(set, c, env, name)
	if err != nil {
		return plan{}, err
	}
	p := plan{name: name, command: command, acquire: o, grace: min(5*time.Second, o.TTL/6), minHold: time.Duration(f.minHold)}
	if set("grace") {
		p.grace = time.Duration(f.grace)
	}
	if set("max-hold") {
		o.MaxHold = time.Duration(f.maxHold)
	}
	switch {
	case o.TTL < minRunTTL:
		return plan{}, usagef("--ttl %v is too short to renew it in time: at least %v", o.TTL, minRunTTL)
	case p.grace > o.TTL/3:
		// A later renewal would come too late to spare the command.
		return plan{}, usagef("--grace %v is more than a third of the TTL of %v", p.grace, o.TTL)
	case set("max-hold") && f.maxHold == 0:
		return plan{}, usagef("--max-hold must be above zero")
	case set("max-hold") && f.minHold > f.maxHold:
		return plan{}, usagef("--min-hold %v is more than --max-hold %v", p.minHold, o.MaxHold)
	case f.ifHeld != "fail" && f.ifHeld != "skip":
		return plan{}, usagef("--if-held is %q, not fail or skip", f.ifHeld)
	case f.ifHeld == "skip" && set("conflict-exit-code"):
		return plan{}, usagef("-E and --if-held skip contradict each other")
	}
	return p, nil
}
