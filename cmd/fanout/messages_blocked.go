package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func blockedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blocked",
		Short: "List the ordering keys that wait for one of their messages, and until when",
		Long: "List the ordering keys that wait for one of their messages: blocked keys, which wait for an operator (on_abandon: block), then the oldest.\n" +
			"A key resumes by itself at the time shown. A blocked key goes on after \"fanout messages requeue --id\" of the message, or without\n" +
			"that message after \"fanout messages unblock\".",
		Args: noArgs,
	}
	target := targetFlags(cmd)
	broker := brokerFlag(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		now := time.Now()
		out := newOutput(cmd, *asJSON, "DATABASE", "BROKER", "KEY", "CLASS", "WAITS FOR", "STATUS", "REASON", "SINCE", "GOES ON", "FOLLOWERS", "LAST ERROR")
		return target.show(out, *broker, "no key waits", func(session *session, database string) error {
			keys, err := session.Blocked(cmd.Context(), database, *broker)
			for i := range keys {
				k := &keys[i]
				if err := out.add(api.NewKeyBlock(database, k),
					text(database), text(k.Broker), styled(k.Key, bold), text(k.Class.String()), text(k.MessageID), styled(string(k.Status), statusStyle(k.Status)), text(k.Reason),
					text(since(k.Since, now)), goesOn(k.Until, now), text(countText(k.Followers)), text(agedError(k.LastError, now))); err != nil {
					return err
				}
			}
			return err
		})
	}
	return cmd
}

// goesOn says when a key resumes by itself.
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
		Short:   "Unblock an ordering key: it goes on without the abandoned message for which it waits",
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
	broker := cmd.Flags().String("broker", "", "the broker for which the key is blocked; required")
	complete(cmd, "broker", (*config.Config).BrokerNames)
	reason := cmd.Flags().String("reason", "", "why, for the audit")
	actor := actorFlag(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "only say whether it is blocked")
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *broker == "" {
			return usageError{errors.New("name the --broker for which the key is blocked: \"fanout messages blocked\" shows it")}
		}
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		blocked, err := one(cmd, session, actor(), monitor.Action{
			Verb: monitor.VerbUnblock, Filter: admin.Filter{Broker: *broker}, Key: args[0], Reason: *reason, DryRun: *dryRun,
		}, *asJSON, func(changed bool) string {
			switch {
			case changed && *dryRun:
				return fmt.Sprintf("key %s of broker %s is blocked", args[0], *broker)
			case changed:
				return fmt.Sprintf("key %s of broker %s is unblocked", args[0], *broker)
			default:
				return fmt.Sprintf("key %s of broker %s is not blocked", args[0], *broker)
			}
		})
		if err == nil && !blocked {
			err = session.exist(cmd.Context(), admin.Filter{Broker: *broker, Key: args[0]}, "")
		}
		return err
	}
	return cmd
}

// one runs an action on one broker or key, and reports its result for each database, and whether it
// changes anything in any of them.
func one(cmd *cobra.Command, session *session, actor monitor.Actor, action monitor.Action, asJSON bool, say func(changed bool) string) (somewhere bool, err error) {
	results, err := session.Do(cmd.Context(), actor, action)
	for _, r := range results {
		changed := r.Changed > 0 || action.DryRun && r.Matched.N > 0
		somewhere = somewhere || changed
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
				return somewhere, err
			}
		case r.Err == nil:
			cmd.Printf("%s: %s\n", r.Database, printable(say(changed)))
		}
	}
	return somewhere, errors.Join(asUsage(err), session.problem())
}
