package main

import (
	"context"
	"log/slog"

	"example.com/redlock"
	"github.com/spf13/cobra"
)

// initFlags are the flags of init.
type initFlags struct {
	redlock.InitOptions
	reconfigure bool
	old         string
}

func (a *app) initCommand() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init [flags]",
		Short: "Declare new nodes: write the configuration to those that are blank",
		Long: `Writes members, quorum, longest TTL and kind of keys to blank nodes, which vote
from then on. Nodes that have the same configuration are left alone; another
configuration is a mismatch, exit code 78.

A blank node among others that are in use has lost its memory, as far as can be
told, and may have forgotten locks that are still held; so may one among others
that do not answer. It is put in quarantine, and votes by itself when that is
over. With --force it votes at once; then make sure yourself that nobody holds a
lock that it granted.

With --durable the nodes are marked as ones that forget nothing, so that a restart
costs them no quarantine. That takes appendonly yes and appendfsync always, which
is looked at now and after every restart, a disk that tells the truth, and nobody
who puts an older copy of the data back. Clients must be permitted CONFIG GET.
--durable=false takes it back.

With --reconfigure the configuration that the flags say takes the place of the
one that the nodes have. --old names the nodes that are to be left behind. All
nodes of the new configuration must be reachable, and of the old one so many that
the others are no quorum. Locks may be held meanwhile: they cannot be extended any more, so
commands under them are ended in time. For about one and a half times the larger
max-ttl no lock can be taken. If it fails, run it again.`,
		Example: `  redlock init                                  # new nodes
  redlock init --reconfigure --max-ttl 60       # the same nodes
  redlock init --reconfigure --nodes $A,$B,$D --old $C`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Forgetful = cmd.Flags().Changed("durable") && !f.Durable
			old, err := f.check(cmd.Flags().Changed("old"))
			if err != nil {
				return err
			}
			return a.withLocker(cmd, func(ctx context.Context, lk *redlock.Locker, c config) error {
				var nodes []redlock.NodeState
				var err error
				if f.reconfigure {
					nodes, err = redlock.Reconfigure(ctx, c.Nodes, c.options(slog.New(a.reports)), old)
				} else {
					nodes, err = initNodes(ctx, lk, f.InitOptions)
				}
				if printErr := a.printNodes(nodes); err == nil {
					err = printErr
				}
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.Force, "force", false, "end quarantines now: nothing that the nodes forgot matters")
	flags.BoolVar(&f.Durable, "durable", false, "mark the nodes as ones that forget nothing when they restart")
	flags.BoolVar(&f.reconfigure, "reconfigure", false, "put this configuration in the place of the one that the nodes have")
	flags.StringVar(&f.old, "old", "", "`URLs` of nodes to leave behind, comma-separated (with --reconfigure)")
	return cmd
}

// check returns the nodes to leave behind.
func (f *initFlags) check(hasOld bool) (old nodeList, err error) {
	switch {
	case f.reconfigure && f.Force:
		return nil, usagef("--force with --reconfigure: locks of the old configuration would be forgotten")
	case f.reconfigure && (f.Durable || f.Forgetful):
		return nil, usagef("--durable with --reconfigure: one after the other")
	case hasOld && !f.reconfigure:
		return nil, usagef("--old goes with --reconfigure")
	case hasOld:
		if err := old.parse(f.old); err != nil {
			return nil, usagef("--old: %v", err)
		}
	}
	return old, nil
}

// initNodes declares new nodes.
func initNodes(ctx context.Context, lk *redlock.Locker, o redlock.InitOptions) ([]redlock.NodeState, error) {
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
	return nodes, err
}
