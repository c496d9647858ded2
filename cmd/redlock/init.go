package main

import (
	"context"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

func (a *app) initCommand() *cobra.Command {
	var o redlock.InitOptions
	cmd := &cobra.Command{
		Use:   "init [flags]",
		Short: "Declare new nodes: write the configuration to those that are blank",
		Long: `Writes members, quorum, longest TTL and kind of keys to blank nodes, which vote
from then on. Nodes that have the same configuration are left alone; another
configuration is a mismatch, exit code 78.

A blank node among others that are in use has lost its memory, as far as can be
told, and may have forgotten locks that are still held: it is put in quarantine,
and votes by itself when that is over. With --force it votes at once; then make
sure yourself that nobody holds a lock that it granted.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, _ config) error {
				nodes, err := lk.Init(ctx, &o)
				for i := range nodes {
					// Blank until now, and "new" would sound as if it still were.
					if nodes[i].Standing == "new" {
						nodes[i].Standing = "declared"
					}
				}
				if err != nil {
					err = brief{"init: " + nodeFaults(nodes).String(), err}
				}
				if printErr := a.printNodes(nodes); err == nil {
					err = printErr
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&o.Force, "force", false, "end quarantines now: nothing that the nodes forgot matters")
	return cmd
}
