package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func purgeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove finished rows, as relays do on a schedule",
		Long: "Remove finished rows, as relays do on a schedule: in batches, and one process at a time. Without ages it removes published and abandoned\n" +
			"rows by the windows of the cleanup section; with one of them, that kind alone. Unfinished rows are never removed.",
		Example: "  fanout purge --dry-run\n  fanout purge --published-before 24h --broker partner",
		Args:    noArgs,
	}
	target := targetFlags(cmd)
	published := cmd.Flags().String("published-before", "", "remove what was published longer ago than this, such as 168h or 7d")
	abandoned := cmd.Flags().String("abandoned-before", "", "remove what was abandoned longer ago than this, such as 720h or 30d")
	broker := brokerFlag(cmd)
	limit := cmd.Flags().Int("limit", 0, "most rows to remove in each database (default: all)")
	reason := cmd.Flags().String("reason", "", "why, for the audit")
	actor := actorFlag(cmd)
	act := changeFlags(cmd, change{verb: monitor.VerbPurge, past: "removed", question: "Remove", of: "finished messages"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		action := monitor.Action{Filter: admin.Filter{Broker: *broker}, Reason: *reason, Limit: *limit}
		if *limit < 0 {
			return usageError{fmt.Errorf("--limit is %d: use a positive number, or leave it out for all", *limit)}
		}
		for _, flag := range []struct {
			name, text string
			dst        *time.Duration
		}{{"--published-before", *published, &action.PublishedBefore}, {"--abandoned-before", *abandoned, &action.AbandonedBefore}} {
			if flag.text == "" {
				continue
			}
			d, err := parseAge(flag.text)
			if err != nil {
				return usageError{fmt.Errorf("%s is %q: use an age such as 24h or 30d", flag.name, flag.text)}
			}
			*flag.dst = d
		}
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		if err := session.exist(cmd.Context(), action.Filter, ""); err != nil {
			return err
		}
		if *published != "" || *abandoned != "" {
			return act.do(cmd, session, actor(), action)
		}
		return scheduled(cmd, session, actor(), act, action)
	}
	return cmd
}

// scheduled purges by the windows of the configuration: all brokers at once where these are the
// same, and broker by broker otherwise.
func scheduled(cmd *cobra.Command, session *session, actor monitor.Actor, c *change, action monitor.Action) error {
	windows := map[cleanup.Retention][]string{}
	for _, broker := range session.cfg.BrokerNames() {
		window := session.cfg.Retention(broker)
		windows[window] = append(windows[window], broker)
	}
	if action.Filter.Broker != "" || len(windows) == 1 {
		return c.do(cmd, session, actor, aged(action, session.cfg.Retention(action.Filter.Broker), action.Filter.Broker))
	}
	// Finished rows of brokers that were removed from the configuration are purged, too.
	brokers := slices.Clone(session.cfg.BrokerNames())
	for _, store := range session.stores {
		finished, err := store.FinishedBrokers(cmd.Context())
		if err != nil {
			return err
		}
		brokers = append(brokers, finished...)
	}
	slices.Sort(brokers)
	for _, broker := range slices.Compact(brokers) {
		of := *c
		of.broker = broker
		if err := of.do(cmd, session, actor, aged(action, session.cfg.Retention(broker), broker)); err != nil {
			return err
		}
	}
	return nil
}

// aged gives a purge its windows.
func aged(action monitor.Action, window cleanup.Retention, broker string) monitor.Action {
	action.Filter.Broker, action.PublishedBefore, action.AbandonedBefore = broker, window.Published, window.Abandoned
	return action
}
