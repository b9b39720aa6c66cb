package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// repair is a command that changes the rows that a filter selects.
type repair struct {
	act      change
	statuses []outbox.Status
	// check refuses a filter that is too wide.
	check func(*filterFlags) error
	// failures says that one group of failures can be selected.
	failures bool
	// ttl says that messages can get a new time to live.
	ttl bool
	// one is for a command that also takes one thing as its argument.
	one func(name string, filters *filterFlags, run singleRun) error
}

// singleRun does something to one thing, and reports in words whether it changed, or would.
type singleRun func(action monitor.Action, say func(changed, dryRun bool) string) error

func requeueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "requeue",
		Short: "Send failed and abandoned messages again, at once and with a fresh budget of attempts",
		Long: "Send failed and abandoned messages again, at once and with a fresh budget of attempts, once the cause is repaired. With --status pending\n" +
			"also those that wait for a time, and with --status processing those of a crashed worker, whose lease has expired. A message keeps its\n" +
			"place within its ordering key. A time to live that has passed is removed, unless --ttl gives all a new one. Malformed messages are left\n" +
			"out, since they would be abandoned again: correct them in the table, then requeue them with --error-class malformed.",
		Example: "  fanout messages requeue --broker partner --fingerprint 5f0c1b9e77aa --dry-run\n  fanout messages requeue --broker partner --status abandoned --since 6h",
	}
	return repairCommand(cmd, repair{
		act:      change{verb: monitor.VerbRequeue, past: "requeued", question: "Requeue"},
		statuses: admin.RequeueStatuses(),
		check:    someCondition("requeue"), failures: true, ttl: true,
	})
}

func abandonCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "abandon",
		Short: "Abandon pending and failed messages: they are not sent",
		Long: "Abandon pending and failed messages, and those of a crashed worker: they are not sent, and their ordering keys go on.\n" +
			"They stay in the table, and can be requeued, until the purge removes them (cleanup.abandoned_retention). --reason goes into their last error.",
		Example: "  fanout messages abandon --broker partner --type \"Ordering.Draft*\" --reason \"partner does not want drafts\"",
	}
	return repairCommand(cmd, repair{
		act:      change{verb: monitor.VerbAbandon, past: "abandoned", question: "Abandon"},
		statuses: admin.AbandonStatuses(),
		check:    someCondition("abandon"), failures: true,
	})
}

func replayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Send published messages again, under the same ids",
		Long: "Send published messages again, under the same ids: consumers that deduplicate by them ignore them. It needs a broker, and a bound:\n" +
			"the time at which they were written, or message ids. What was purged cannot be replayed (cleanup.published_retention),\n" +
			"nor what was not kept after its delivery (keep: false).",
		Example: "  fanout messages replay --broker partner --since 2h --dry-run\n" +
			"  fanout messages replay --broker partner --since 2026-05-01T10:00:00Z --until 2026-05-01T11:00:00Z",
	}
	return repairCommand(cmd, repair{
		act:      change{verb: monitor.VerbReplay, past: "set to be sent again", question: "Replay"},
		statuses: admin.ReplayStatuses(),
		check: func(f *filterFlags) error {
			if f.broker == "" || f.since == "" && f.until == "" && len(f.ids) == 0 {
				return usageError{errors.New("replay needs --broker, and a bound: --since, --until or --id")}
			}
			return nil
		},
	})
}

func acknowledgeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acknowledge",
		Short: "Acknowledge abandoned messages: they raise no alert any more, and the next one does",
		Long: "Acknowledge abandoned messages: you have seen them, so that they raise no alert any more; the next one that is abandoned does. Nothing else\n" +
			"changes: they can be requeued until the purge removes them, and keys that wait for them keep waiting.",
		Example: "  fanout messages acknowledge --broker partner --fingerprint 5f0c1b9e77aa --reason \"partner knows\"",
	}
	return repairCommand(cmd, repair{
		act:      change{verb: monitor.VerbAcknowledge, past: "acknowledged", question: "Acknowledge"},
		statuses: admin.AbandonedStatuses(),
		check:    someCondition("acknowledge"), failures: true,
	})
}

func discardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard",
		Short: "Remove abandoned messages forever: keys that wait for them go on",
		Long: "Remove abandoned messages forever, whatever their age: they cannot be requeued any more, and ordering keys that wait for them\n" +
			"(on_abandon: block) go on with the next message.",
		Example: "  fanout messages discard --broker partner --error-class permanent --type \"Ordering.Draft*\" --dry-run",
	}
	return repairCommand(cmd, repair{
		act:      change{verb: monitor.VerbDiscard, past: "discarded", question: "Remove forever"},
		statuses: admin.AbandonedStatuses(),
		check:    someCondition("discard"), failures: true,
	})
}

// someCondition refuses a filter that selects every row, which is more likely an oversight.
func someCondition(verb string) func(*filterFlags) error {
	return func(f *filterFlags) error {
		if f.empty() {
			return usageError{fmt.Errorf("%s needs to know which messages: name a --broker, --fingerprint, --id, --key, --key-prefix, --aggregate, --correlation, --tenant, "+
				"--type, --status, --error-class, --since or --until", verb)}
		}
		return nil
	}
}

func repairCommand(cmd *cobra.Command, r repair) *cobra.Command {
	cmd.Args = noArgs
	if r.one != nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] == "" {
				return usageError{fmt.Errorf("%q takes one name at most: see \"%s --help\"", cmd.CommandPath(), cmd.CommandPath())}
			}
			return nil
		}
	}
	target := targetFlags(cmd)
	filters := addFilter(cmd, r.statuses...)
	filters.withKeyPrefix(cmd)
	if r.failures {
		filters.withFingerprint(cmd)
	}
	ttl := new(string)
	if r.ttl {
		cmd.Flags().StringVar(ttl, "ttl", "", "new time to live, such as 1h or 7d (default: one that has passed is removed, others stay)")
	}
	limit := cmd.Flags().Int("limit", 0, "most messages to change in each database, oldest first (default: all)")
	reason := cmd.Flags().String("reason", "", "why, for the audit")
	actor := actorFlag(cmd)
	act := changeFlags(cmd, r.act)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return r.one(args[0], filters, func(action monitor.Action, say func(changed, dryRun bool) string) error {
				action.Reason, action.DryRun = *reason, *act.dryRun
				return act.single(cmd, target, actor(), action, func(changed bool) string { return say(changed, *act.dryRun) })
			})
		}
		if err := r.check(filters); err != nil {
			return err
		}
		if *limit < 0 {
			return usageError{fmt.Errorf("--limit is %d: use a positive number, or leave it out for all", *limit)}
		}
		filter, err := filters.filter(time.Now(), r.statuses...)
		if err != nil {
			return err
		}
		action := monitor.Action{Filter: filter, Fingerprint: filters.fingerprint, Reason: *reason, Limit: *limit}
		if *ttl != "" {
			if action.TTL, err = parseAge(*ttl); err != nil {
				return usageError{fmt.Errorf("--ttl is %q: use a duration such as 1h or 7d", *ttl)}
			}
		}
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		return act.do(cmd, session, actor(), action)
	}
	return cmd
}

// single acts on one thing, which must be known where nothing changes.
func (c *change) single(cmd *cobra.Command, target *target, actor monitor.Actor, action monitor.Action, say func(changed bool) string) error {
	session, err := target.open(cmd)
	if err != nil {
		return err
	}
	defer session.Close()
	somewhere, err := one(cmd, session, actor, action, *c.asJSON, say)
	if err == nil && !somewhere {
		broker, key := action.Filter.Broker, action.Key
		err = errors.Join(session.exist(cmd.Context(), admin.Filter{Broker: broker, Key: key}, ""), session.meantKey(cmd.Context(), broker, key))
	}
	return err
}

// meantKey fails where a key is that of an abandoned message once it has its context: ordering::order-42
// for order-42. A key is unblocked by its whole name alone.
func (s *session) meantKey(ctx context.Context, broker, key string) error {
	for _, database := range s.Databases() {
		page, err := s.Messages(ctx, database, monitor.MessagesQuery{Filter: admin.Filter{Broker: broker, Key: key, Statuses: admin.AbandonedStatuses()}, Limit: 1})
		if err != nil {
			return err
		}
		for i := range page.Records {
			if whole := page.Records[i].OrderingKey; whole != key {
				return fmt.Errorf("%s: did you mean the key %q?", database, whole)
			}
		}
	}
	return nil
}
