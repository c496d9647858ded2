package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"example.com/redlock"
	"example.com/redlock/backend"
	"github.com/spf13/cobra"
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
				lease, err := a.acquire(ctx, lk, args[0], o)
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
	var (
		ttl   seconds
		owner string
	)
	cmd := &cobra.Command{
		Use:   "extend [flags] HANDLE",
		Short: "Prolong a lock by its TTL and print its new handle",
		Long: `Takes over the lock that HANDLE stands for, under a new fencing token, for
another TTL, and prints the new handle: the old one is spent. With - the handle
is read from standard input, where other users cannot see it.`,
		Args: exactArgs("HANDLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("ttl") && ttl == 0 {
				return usagef("--ttl must be above zero")
			}
			handle, err := a.readHandle(args[0])
			if err != nil {
				return err
			}
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, c config) error {
				o := &redlock.AcquireOptions{TTL: time.Duration(ttl), Owner: owner, NoRenew: true, MaxHold: -1}
				if o.TTL == 0 {
					o.TTL = c.leaseTTL()
				}
				if o.Owner == "" {
					o.Owner = defaultOwner()
				}
				lease, err := lk.Resume(ctx, handle, o)
				if err != nil {
					return spent(err)
				}
				return a.handOut(lk, lease, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Var(&ttl, "ttl", "how long the lock lasts from now (default 30s, or max-ttl if less)")
	flags.StringVar(&owner, "owner", "", "label of the holder, for people (default user@host:pid)")
	return cmd
}

func (a *app) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release [flags] HANDLE",
		Short: "Give back a lock that acquire took",
		Long: `Gives back the lock that HANDLE stands for, also one that was broken. Exit code
79 if it had ended. With - the handle is read from standard input, where other
users cannot see it.`,
		Args: exactArgs("HANDLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			handle, err := a.readHandle(args[0])
			if err != nil {
				return err
			}
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, _ config) error {
				return a.releaseHandle(ctx, lk, handle)
			})
		},
	}
}

// releaseLine is what release prints with --json.
type releaseLine struct {
	Name string `json:"name"`
}

func (a *app) releaseHandle(ctx context.Context, lk *redlock.Locker, handle string) error {
	err := lk.ReleaseHandle(ctx, handle)
	if errors.Is(err, redlock.ErrLost) {
		// Nodes with another configuration would not have it either.
		if other := mismatch(lk.Nodes(ctx)); other != nil {
			return other
		}
	}
	if err != nil || !a.json {
		return spent(err)
	}
	name, err := backend.HandleName(handle)
	if err != nil {
		return err
	}
	return a.emit(releaseLine{name})
}

// spent adds to a lost lease, for people, what it means to whoever has a handle:
// no node can tell a handle that was used before from one whose lock has ended.
func spent(err error) error {
	if !errors.Is(err, redlock.ErrLost) {
		return err
	}
	return brief{briefText(err) + ": the handle has been used, or the lock was broken or its time is over", err}
}

// readHandle returns the handle that arg is, or says where to find.
func (a *app) readHandle(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	line, err := bufio.NewReader(a.in).ReadString('\n')
	handle := strings.TrimSpace(line)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", fmt.Errorf("read the handle: %w", err)
	case handle == "":
		return "", usagef("no handle on standard input")
	}
	return handle, nil
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
	return errors.Join(fmt.Errorf("print the handle: %w", err), lk.ReleaseHandle(context.Background(), handle))
}
