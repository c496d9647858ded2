package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/redlock"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// handleLine is what acquire and extend print with --json.
type handleLine struct {
	Name        string `json:"name"`
	Handle      string `json:"handle"`
	Token       uint64 `json:"token"`
	Owner       string `json:"owner"`
	TTLMS       int64  `json:"ttl_ms"`
	RemainingMS int64  `json:"remaining_ms"`
}

func (a *app) acquireCommand() *cobra.Command {
	var f takeFlags
	cmd := &cobra.Command{
		Use:   "acquire [flags] NAME",
		Short: "Take a lock for its TTL and print a handle for extend and release",
		Long: `Takes the lock NAME and prints a handle. Nobody renews the lock: it ends with
its TTL unless extend prolongs it. The handle is a secret: whoever has it can
release the lock.`,
		Example: `  handle=$(redlock acquire -n --ttl 20 deploy) || exit
  handle=$(redlock extend "$handle") || exit
  redlock release "$handle"`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.conflicted(a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, c config) error {
				o, err := f.options(cmd.Flags().Changed, c, a.env, args[0])
				if err != nil {
					return err
				}
				o.NoRenew = true
				o.OnWait = a.sayWait(args[0])
				lease, err := lk.Acquire(ctx, args[0], o)
				if err != nil {
					return err
				}
				return a.handOut(lk, lease, o)
			}))
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func (a *app) extendCommand() *cobra.Command {
	var f handleFlags
	cmd := &cobra.Command{
		Use:   "extend [flags] HANDLE",
		Short: "Prolong a lock by its TTL and print its new handle",
		Long: `Takes over the lock that HANDLE stands for, under a new fencing token, for
another TTL, and prints the new handle: the old one is spent. With - the handle
is read from standard input, where other users cannot see it.`,
		Args: exactArgs("HANDLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.resume(cmd, f, args[0], a.handOut)
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func (a *app) releaseCommand() *cobra.Command {
	var f handleFlags
	cmd := &cobra.Command{
		Use:   "release [flags] HANDLE",
		Short: "Give back a lock that acquire took",
		Long: `Gives back the lock that HANDLE stands for. Exit code 79 if it had ended. With -
the handle is read from standard input, where other users cannot see it.`,
		Args: exactArgs("HANDLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.resume(cmd, f, args[0], func(_ *redlock.Locker, l *redlock.Lease, _ *redlock.AcquireOptions) error {
				if err := l.Release(context.Background()); err != nil {
					return err
				}
				if a.json {
					return a.emit(nameLine{l.Name()})
				}
				return nil
			})
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

// nameLine is what release and break print with --json.
type nameLine struct {
	Name string `json:"name"`
}

// handleFlags are the flags of the commands that take a handle.
type handleFlags struct {
	ttl   seconds
	owner string
}

func (f *handleFlags) bind(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.Var(&f.ttl, "ttl", "how long the lock lasts from now (default 30s)")
	flags.StringVar(&f.owner, "owner", "", "label of the holder, for people (default user@host:pid)")
}

// resume takes over the lease of a handle for what is to be done with it.
func (a *app) resume(cmd *cobra.Command, f handleFlags, handle string,
	then func(*redlock.Locker, *redlock.Lease, *redlock.AcquireOptions) error) error {
	if handle == "-" {
		line, err := bufio.NewReader(a.in).ReadString('\n')
		if handle = strings.TrimSpace(line); handle == "" {
			return usagef("no handle on standard input: %v", err)
		}
	}
	return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, c config) error {
		o := &redlock.AcquireOptions{TTL: time.Duration(f.ttl), Owner: f.owner, NoRenew: true, MaxHold: -1}
		if o.TTL == 0 {
			o.TTL = c.leaseTTL()
		}
		if o.Owner == "" {
			o.Owner = defaultOwner()
		}
		lease, err := lk.Resume(ctx, handle, o)
		if err != nil {
			return err
		}
		return then(lk, lease, o)
	})
}

// handOut prints the handle of a lease. If nobody can read it the lease is
// given back: it would only be in the way.
func (a *app) handOut(lk *redlock.Locker, lease *redlock.Lease, o *redlock.AcquireOptions) error {
	line := handleLine{
		Name: lease.Name(), Token: uint64(lease.Token()), Owner: o.Owner,
		TTLMS: o.TTL.Milliseconds(), RemainingMS: time.Until(lease.Deadline()).Milliseconds(),
	}
	handle, err := lease.Handle()
	if err != nil {
		return err
	}
	line.Handle = handle
	surviveBrokenPipes()
	if a.json {
		err = a.emit(line)
	} else {
		_, err = fmt.Fprintln(a.out, handle)
	}
	if err == nil {
		return nil
	}
	back, resumeErr := lk.Resume(context.Background(), handle, o)
	if resumeErr == nil {
		resumeErr = back.Release(context.Background())
	}
	return errors.Join(fmt.Errorf("print the handle: %w", err), resumeErr)
}
