package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func brokerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Pause and resume the delivery to a broker",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		pauseOrResume(monitor.VerbPause, "is paused", "was paused already", "why, for the audit and for those who read the status", &cobra.Command{
			Use:   "pause NAME",
			Short: "Deliver nothing to a broker until it is resumed, in all processes",
			Long: "Deliver nothing to a broker until it is resumed. The database keeps the pause, so that all relays honour it, also those that start later:\n" +
				"each at its next poll, within outbox.poll.max. Rows are still written, and none loses an attempt; times to live go on.",
		}),
		pauseOrResume(monitor.VerbResume, "is resumed", "was not paused", "why, for the audit", &cobra.Command{
			Use:   "resume NAME",
			Short: "Resume the delivery to a broker",
		}))
	return cmd
}

func pauseOrResume(verb, done, already, reasonUse string, cmd *cobra.Command) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = oneBroker, completeBroker
	target := targetFlags(cmd)
	reason := cmd.Flags().String("reason", "", reasonUse)
	actor := actorFlag(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		action := monitor.Action{Verb: verb, Filter: admin.Filter{Broker: args[0]}, Reason: *reason}
		if verb == monitor.VerbResume || !slices.Contains(session.cfg.BrokerNames(), args[0]) { // a pause outlives the configuration of its broker
			if err := session.exist(cmd.Context(), action.Filter, ""); err != nil {
				return err
			}
		}
		_, err = one(cmd, session, actor(), action, *asJSON, func(changed bool) string {
			if changed {
				return fmt.Sprintf("broker %s %s", args[0], done)
			}
			return fmt.Sprintf("broker %s %s", args[0], already)
		})
		return err
	}
	return cmd
}

func oneBroker(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError{fmt.Errorf("%q takes the name of one broker: see \"%s --help\"", cmd.CommandPath(), cmd.CommandPath())}
	}
	return nil
}
