package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) delayStartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delay-start [flags] [--] SERVER [ARG...]",
		Short: "Start a server once no lock can be left from before it went down",
		Long: `Waits until every lock that SERVER can have granted before it went down is over,
then becomes SERVER: the same process, without a shell. A server that has lost its
memory would otherwise grant at once what somebody still holds. It is the delayed
restart of the Redis documentation ("Distributed Locks with Redis"), for clients,
of other languages for instance, that do not notice a restart themselves.

The wait is somewhat more than the longest TTL, as the documentation asks:

  max-ttl x (1 + drift-rate) + drift-floor     30s x 1.01 + 2ms = 30.302s

--max-ttl must cover the TTL of every client. drift-rate, from the configuration
file, allows for the clock of a holder that runs slower than this machine's. The
clock is the monotonic one; it may stop while the machine is suspended, and then
the wait is longer. No nodes need to be configured.

Every start waits, the first too: an empty directory is no proof that nothing was
granted, because it is also what a server that has lost everything comes back to.

Exit code: the server's; 128+N if signal N ended the wait; 127 or 126 if there is
no such SERVER or it cannot be run, which is found out before the wait.`,
		Example: `  # /etc/systemd/system/redis-server.service.d/delay.conf
  [Service]
  ExecStart=
  ExecStart=redlock delay-start --max-ttl 30s -- /usr/bin/redis-server /etc/redis.conf`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 {
				return usagef("expected SERVER")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.configure(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			d, err := c.startDelay()
			if err != nil {
				return err
			}
			return a.delayStart(d, args)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows SERVER belongs to it
	return cmd
}

// delay is how long a server is held back, and for which TTL.
type delay struct{ maxTTL, wait time.Duration }

// startDelay returns the delay for a node of c. The defaults and limits are those
// of redlock.Options.
//
// A lease was granted before the server went down, so it is over once MaxTTL has
// passed on its holder's clock. By the meaning of DriftRate our clock shows at
// most MaxTTL * (1 + DriftRate) then. A holder that takes the drift off its
// validity itself, as it should, is done sooner; not every client does. The
// floor is for the milliseconds in which Redis counts.
func (c config) startDelay() (delay, error) {
	const shortest, longest = 2 * time.Second, 24 * time.Hour
	maxTTL := cmp.Or(time.Duration(c.MaxTTL), 30*time.Second)
	rate := cmp.Or(c.DriftRate, 0.01)
	floor := cmp.Or(time.Duration(c.DriftFloor), 2*time.Millisecond)
	switch {
	case maxTTL < shortest || maxTTL > longest:
		return delay{}, configf("max TTL %v is not between %v and %v", maxTTL, shortest, longest)
	case !(rate >= 0 && rate < 0.5): // also refuses NaN
		return delay{}, configf("drift rate %v is not between 0 and 0.5", rate)
	}
	return delay{maxTTL, maxTTL + time.Duration(float64(maxTTL)*rate) + floor}, nil
}
