package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// wireKeyBlock is an ordering key that waits.
type wireKeyBlock struct {
	Database  string        `json:"database"`
	Broker    string        `json:"broker"`
	Key       string        `json:"key"`
	MessageID string        `json:"message_id"`
	Status    outbox.Status `json:"status,omitempty"`
	Reason    string        `json:"reason"`
	Since     *time.Time    `json:"since,omitempty"`
	Until     *time.Time    `json:"until,omitempty"`
	Followers int64         `json:"followers"`
	More      bool          `json:"more,omitempty"`
	LastError *wireError    `json:"last_error,omitempty"`
}

func blockedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blocked",
		Short: "List the ordering keys that wait for one of their messages, and until when",
		Long: "List the ordering keys that wait for one of their messages: those that wait for an operator first (on_abandon: block), then the oldest.\n" +
			"A key goes on by itself at the time shown; one that waits for you after \"fanout messages requeue --id\" of the message, or without\n" +
			"that message after \"fanout messages unblock\".",
		Args: noArgs,
	}
	target := targetFlags(cmd)
	broker := brokerFlag(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		now := time.Now()
		table, found := newTable(cmd.OutOrStdout(), "DATABASE", "BROKER", "KEY", "WAITS FOR", "STATUS", "REASON", "SINCE", "GOES ON", "FOLLOWERS", "LAST ERROR"), 0
		err = session.each(func(database string) error {
			keys, err := session.Blocked(cmd.Context(), database, *broker)
			for i := range keys {
				k := &keys[i]
				found++
				if !*asJSON {
					table.add(text(database), text(k.Broker), styled(k.Key, bold), text(k.MessageID), styled(string(k.Status), statusStyle(k.Status)), text(k.Reason),
						text(since(k.Since, now)), goesOn(k.Until, now), text(countText(k.Followers)), text(agedError(k.LastError, now)))
				} else if err := printLine(cmd, toBlocked(database, k)); err != nil {
					return err
				}
			}
			return err
		})
		switch {
		case !*asJSON && found > 0:
			err = errors.Join(err, table.print(cmd.OutOrStdout()))
		case !*asJSON && err == nil:
			cmd.PrintErrln("no key waits")
		}
		return err
	}
	return cmd
}

func toBlocked(database string, k *admin.KeyBlock) wireKeyBlock {
	return wireKeyBlock{
		Database: database, Broker: k.Broker, Key: k.Key, MessageID: k.MessageID, Status: k.Status, Reason: k.Reason, Since: toTime(k.Since),
		Until: toTime(k.Until), Followers: k.Followers.N, More: k.Followers.More, LastError: toError(k.LastError),
	}
}

// goesOn says when a key goes on by itself.
func goesOn(until, now time.Time) cell {
	switch {
	case until.IsZero():
		return styled("when you act", red)
	case until.After(now):
		return text("in " + age(until.Sub(now)))
	default:
		return text("now")
	}
}

func unblockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "unblock KEY",
		Short:   "Let an ordering key go on without the abandoned message for which it waits",
		Example: "  fanout messages blocked\n  fanout messages unblock order-42 --broker partner --reason \"sent by hand\"",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{fmt.Errorf("%q takes one ordering key: see \"%s --help\"", cmd.CommandPath(), cmd.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	target := targetFlags(cmd)
	broker := cmd.Flags().String("broker", "", "the broker for which the key waits; required")
	complete(cmd, "broker", (*config.Config).BrokerNames)
	reason := cmd.Flags().String("reason", "", "why, for the audit")
	actor := actorFlag(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "only say whether it waits")
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *broker == "" {
			return usageError{errors.New("name the --broker for which the key waits: \"fanout messages blocked\" shows it")}
		}
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		return one(cmd, session, actor(), monitor.Action{
			Verb: monitor.VerbUnblock, Filter: admin.Filter{Broker: *broker}, Key: args[0], Reason: *reason, DryRun: *dryRun,
		}, *asJSON, func(changed bool) string {
			switch {
			case changed && *dryRun:
				return fmt.Sprintf("key %s of broker %s waits for an operator", args[0], *broker)
			case changed:
				return fmt.Sprintf("key %s of broker %s goes on", args[0], *broker)
			default:
				return fmt.Sprintf("key %s of broker %s does not wait for an operator", args[0], *broker)
			}
		})
	}
	return cmd
}

// one does what is for one thing, and says for each database what came out.
func one(cmd *cobra.Command, session *session, actor monitor.Actor, action monitor.Action, asJSON bool, say func(changed bool) string) error {
	results, err := session.Do(cmd.Context(), actor, action)
	for _, r := range results {
		changed := r.Changed > 0 || action.DryRun && r.Matched.N > 0
		switch {
		case asJSON:
			line := struct {
				Database string `json:"database"`
				Changed  bool   `json:"changed"`
				DryRun   bool   `json:"dry_run,omitempty"`
				AuditID  int64  `json:"audit_id,omitempty"`
				Error    string `json:"error,omitempty"`
			}{r.Database, changed, action.DryRun, r.AuditID, ""}
			if r.Err != nil {
				line.Error = r.Err.Error()
			}
			if err := printLine(cmd, line); err != nil {
				return err
			}
		case r.Err == nil:
			cmd.Printf("%s: %s\n", r.Database, printable(say(changed)))
		}
	}
	return errors.Join(asUsage(err), session.problem())
}
