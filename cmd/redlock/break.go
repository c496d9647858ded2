package main

import (
	"context"
	"fmt"
	"slices"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

// breakLine is what break prints with --json.
type breakLine struct {
	Name  string `json:"name"`
	Held  bool   `json:"held"`
	Owner string `json:"owner"`
}

func (a *app) breakCommand() *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "break [flags] NAME",
		Short: "Take a lock away from its holder",
		Long: `Refuses the holder of NAME any further extension. A holder that lives notices in
time and stops; the lock is free when its time is over. With --now it is free at
once, and a holder that lives may still act for a while: to be used when it is
known to be dead.`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, _ config) error {
				return a.breakLock(ctx, lk, args[0], now)
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "free it at once: the holder may still act")
	return cmd
}

func (a *app) breakLock(ctx context.Context, lk *redlock.Locker, name string, now bool) error {
	st, err := inspect(ctx, lk, name)
	if err != nil {
		return err
	}
	// What too few nodes keep is no lock, but it may be in the way.
	remains := slices.ContainsFunc(st.Votes, func(v redlock.Vote) bool { return v.Holder != "" })
	if st.Held || remains {
		if err := lk.Break(ctx, name, &redlock.BreakOptions{Now: now}); err != nil {
			return err
		}
	}
	if st.Held && now {
		a.log.Warn("the lock is free, but a holder that lives may still act", "name", name)
	}
	if a.json {
		line := breakLine{Name: name, Held: st.Held}
		if st.Held {
			line.Owner = st.Owner
		}
		return a.emit(line)
	}
	text := "free, nothing to break"
	switch {
	case st.Held:
		text = "broken"
		if st.Owner != "" {
			text += fmt.Sprintf(", was held by %q", st.Owner)
		}
		if !now {
			text += "; free when its time is over, at the latest"
		}
	case remains:
		text = "free, remains on some nodes broken"
	}
	_, err = fmt.Fprintf(a.out, "%s: %s\n", name, text)
	return err
}
