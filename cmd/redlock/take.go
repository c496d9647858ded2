package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode"

	"example.com/redlock"
	"github.com/spf13/pflag"
)

// takeFlags are the flags of the commands that take a lock.
type takeFlags struct {
	nonblock bool
	shared   bool
	wait     seconds
	ttl      seconds
	owner    string
	conflict int
}

func (f *takeFlags) bind(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "do not wait for a holder")
	flags.VarP(&f.wait, "wait", "w", "wait at most so long for a holder: 30, 0.5 or 30s; 0 is -n (default for ever)")
	flags.Var(&f.ttl, "ttl", "how long the lock outlives a redlock that died (default 30s, or max-ttl if less)")
	flags.BoolVarP(&f.shared, "shared", "s", false, "share the lock with others that do: readers together, writers alone")
	flags.StringVar(&f.owner, "owner", "", "label of the holder, for people (default user@host:pid)")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", exitHeld, "exit `code` when the lock is held by others")
}

// options checks the flags. set tells whether a flag was given.
func (f *takeFlags) options(set func(flag string) bool, c config, env []string, name string) (*redlock.AcquireOptions, error) {
	switch {
	case f.nonblock && set("wait") && f.wait != 0:
		return nil, usagef("-n and -w contradict each other")
	case set("ttl") && f.ttl == 0:
		return nil, usagef("--ttl must be above zero")
	case f.conflict < 0 || f.conflict > 255:
		return nil, usagef("-E %d is not an exit code", f.conflict)
	case slices.Contains(heldNames(env), name):
		return nil, usagef("%q is held already by a redlock that this one runs under, and would wait for itself", name)
	}
	o := &redlock.AcquireOptions{
		TTL: time.Duration(f.ttl), Wait: time.Duration(f.wait), MaxHold: -1, Owner: f.owner,
	}
	if f.shared {
		o.Mode = redlock.Shared
	}
	if o.TTL == 0 {
		o.TTL = c.leaseTTL()
	}
	// As the default, but also for a lease that was handed over: it lasts for two seconds
	// only until it is extended, too short to start a command, or to print a handle.
	o.MinValidity = o.TTL / 2
	if f.nonblock || (set("wait") && f.wait == 0) {
		o.Wait = redlock.NoWait
	}
	if o.Owner == "" {
		o.Owner = defaultOwner()
	}
	return o, nil
}

// graphic is text with a ? for what is no letter, or would move the cursor.
func graphic(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return '?'
	}, text)
}

// held tells whether err means that others hold the lock, and nothing worse.
func held(err error) bool {
	return errors.Is(err, redlock.ErrHeld) && exitCode(err) == exitHeld
}

// conflicted gives a lock that is held the exit code that was asked for.
func (f *takeFlags) conflicted(err error) error {
	if held(err) {
		return coded{f.conflict, err}
	}
	return err
}

// defaultOwner says who we are: user@host:pid.
func defaultOwner() string {
	who := "?"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	// A label is short, printable UTF-8; names of users and hosts need not be.
	label := graphic(who + "@" + host)
	const maxLabel = 100 // leaves room for the number
	for len(label) > maxLabel {
		r := []rune(label)
		label = string(r[:len(r)-1])
	}
	return fmt.Sprintf("%s:%d", label, os.Getpid())
}

// acquire takes a lock, and says what it waits for.
func (a *app) acquire(ctx context.Context, lk *redlock.Locker, name string, o *redlock.AcquireOptions) (*redlock.Lease, error) {
	o.OnWait = a.sayWait(name)
	defer a.said.show("")
	return lk.Acquire(ctx, name, o)
}
