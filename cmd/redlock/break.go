package main

import (
	"context"
	"fmt"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

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
				if err := lk.Break(ctx, args[0], &redlock.BreakOptions{Now: now}); err != nil {
					return err
				}
				if now {
					a.log.Warn("the lock is free, but a holder that lives may still act", "name", args[0])
				}
				if a.json {
					return a.emit(nameLine{args[0]})
				}
				_, err := fmt.Fprintf(a.out, "%s: broken\n", args[0])
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "free it at once: the holder may still act")
	return cmd
}
