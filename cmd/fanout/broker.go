package main

import (
	"fmt"

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
	cmd.AddCommand(pauseCommand(), resumeCommand())
	return cmd
}

func pauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Deliver nothing to a broker until it is resumed, in all processes",
		Long: "Deliver nothing to a broker until it is resumed. The database keeps the pause, so that all relays honour it, also those that start later:\n" +
			"each at its next look for rows, within outbox.poll.max. Rows go on being written, and none loses an attempt; a ttl goes on.",
		Args: oneBroker, ValidArgsFunction: completeBroker,
	}
	target := targetFlags(cmd)
	reason := cmd.Flags().String("reason", "", "why, for the audit and for those who read the status")
	actor := actorFlag(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		action := monitor.Action{Verb: monitor.VerbPause, Filter: admin.Filter{Broker: args[0]}, Reason: *reason}
		return one(cmd, session, actor(), action, *asJSON, func(changed bool) string {
			if !changed {
				return fmt.Sprintf("broker %s was paused already", args[0])
			}
			return fmt.Sprintf("broker %s is paused", args[0])
		})
	}
	return cmd
}

func resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Let the delivery to a broker go on",
		Args:  oneBroker, ValidArgsFunction: completeBroker,
	}
	target := targetFlags(cmd)
	reason := cmd.Flags().String("reason", "", "why, for the audit")
	actor := actorFlag(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		action := monitor.Action{Verb: monitor.VerbResume, Filter: admin.Filter{Broker: args[0]}, Reason: *reason}
		if err := checkPaused(cmd, session, action); err != nil {
			return err
		}
		return one(cmd, session, actor(), action, *asJSON, func(changed bool) string {
			if !changed {
				return fmt.Sprintf("broker %s was not paused", args[0])
			}
			return fmt.Sprintf("broker %s goes on", args[0])
		})
	}
	return cmd
}

// checkPaused refuses a broker that the configuration does not have, unless it is paused all the same: a pause outlives its broker's
// entry. A typing error must not look like a success.
func checkPaused(cmd *cobra.Command, session *session, action monitor.Action) error {
	unknown := checkUsed(session.cfg, action.Filter.Broker)
	if unknown == nil {
		return nil
	}
	action.DryRun = true
	results, err := session.Do(cmd.Context(), monitor.Actor{}, action)
	if err == nil && matched(results).N == 0 && len(session.failed) == 0 {
		return unknown
	}
	return nil // what is wrong will be said
}

func oneBroker(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError{fmt.Errorf("%q takes the name of one broker: see \"%s --help\"", cmd.CommandPath(), cmd.CommandPath())}
	}
	return nil
}
