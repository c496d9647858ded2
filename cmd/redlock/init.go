package main

import (
	"context"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

func (a *app) initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [flags]",
		Short: "Declare new nodes: write the configuration to those that are blank",
		Long: `Writes members, quorum, longest TTL and kind of keys to blank nodes. Nodes that
have the same configuration are left alone; another configuration is a mismatch,
exit code 78. Declare a node only if it is new: one that has lost its memory may
have forgotten locks that are still held.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, _ config) error {
				nodes, err := lk.Init(ctx)
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
}
