package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func blockedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blocked",
		Short: "List the ordering keys that wait for one of their messages, and until when",
		Long: "List the ordering keys that wait for one of their messages: first the blocked keys, which wait for an operator (on_abandon: block), and then\n" +
			"the others, each by the number of messages behind them. The totals are those of all keys, listed or not.\n" +
			"A key resumes by itself at the time shown. A blocked key goes on after \"fanout messages requeue --id\" of the message, or without\n" +
			"that message after \"fanout messages unblock\".",
		Args: noArgs,
	}
	target := targetFlags(cmd)
	broker := brokerFlag(cmd)
	limit := cmd.Flags().Int("limit", monitor.DefaultBlocked, fmt.Sprintf("most keys to list of each database, up to %d", monitor.MaxBlocked))
	asJSON := jsonFlag(cmd, jsonLines+"; the last one of a database has the totals")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		now := time.Now()
		if *limit < 1 || *limit > monitor.MaxBlocked {
			return usageError{fmt.Errorf("--limit is %d: use 1 to %d", *limit, monitor.MaxBlocked)}
		}
		var totals []string
		defer func() {
			for _, line := range totals {
				cmd.PrintErrln(line)
			}
		}()
		out := newOutput(cmd, *asJSON, "DATABASE", "BROKER", "KEY", "CLASS", "WAITS FOR", "STATUS", "REASON", "SINCE", "GOES ON", "FOLLOWERS", "LAST ERROR")
		return target.show(out, *broker, "no key waits", func(session *session, database string) error {
			list, err := session.Blocked(cmd.Context(), database, *broker, *limit)
			for i := range list.Keys {
				k := &list.Keys[i]
				if err := out.add(api.NewKeyBlock(database, k),
					text(database), text(k.Broker), styled(k.Key, bold), text(k.Class.String()), text(k.MessageID), styled(string(k.Status), statusStyle(k.Status)), text(k.Reason),
					text(since(k.Since, now)), goesOn(k.Until, now), text(countText(k.Followers)), text(agedError(k.LastError, now))); err != nil {
					return err
				}
			}
			switch {
			case err != nil:
			case *asJSON:
				err = printLine(cmd, api.NewKeyTotals(database, &list))
			case list.Waiting.Keys.N > 0:
				totals = append(totals, keyTotals(database, &list))
			}
			return err
		})
	}
	return cmd
}

// keyTotals says how many keys wait, and how many of them are listed.
func keyTotals(database string, l *admin.KeyBlocks) string {
	line := fmt.Sprintf("%s: %s of %s keys listed, with %s behind all of them", database, thousands(int64(len(l.Keys))), countText(l.Waiting.Keys), rows(l.Waiting.Rows))
	if l.Blocked.Keys.N > 0 {
		line += fmt.Sprintf("; %s wait for you, with %s behind them", countText(l.Blocked.Keys), rows(l.Blocked.Rows))
	}
	if int64(len(l.Keys)) < l.Waiting.Keys.N || l.Waiting.Keys.More {
		line += "; --limit lists more"
	}
	return line
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
		Use:   "unblock [KEY]",
		Short: "Unblock ordering keys: they go on without the abandoned messages for which they wait",
		Long: "Unblock an ordering key, or all those that wait for messages which the flags select: they go on without these messages, which stay\n" +
			"abandoned. \"fanout messages discard\" removes the messages, too.",
		Example: "  fanout messages blocked\n  fanout messages unblock ordering::order-42 --broker partner --reason \"sent by hand\"\n" +
			"  fanout messages unblock --broker partner --fingerprint 5f0c1b9e77aa --dry-run\n  fanout messages unblock --broker partner --type \"*\"",
	}
	return repairCommand(cmd, repair{
		act:      change{verb: monitor.VerbUnblock, past: "unblocked", question: "Unblock", unit: "key"},
		statuses: admin.AbandonedStatuses(),
		check:    someCondition("unblock"), failures: true, one: unblockKey,
	})
}

// unblockKey unblocks one key.
func unblockKey(key string, filters *filterFlags, run singleRun) error {
	broker := filters.broker
	if broker == "" {
		return usageError{errors.New("name the --broker for which the key is blocked: \"fanout messages blocked\" shows it")}
	}
	others := *filters
	if others.broker = ""; !others.empty() {
		return usageError{errors.New("with a KEY, only --broker says more: leave the other conditions out, or the KEY")}
	}
	return run(monitor.Action{Verb: monitor.VerbUnblock, Filter: admin.Filter{Broker: broker}, Key: key}, func(changed, dryRun bool) string {
		switch {
		case changed && dryRun:
			return fmt.Sprintf("key %s of broker %s is blocked", key, broker)
		case changed:
			return fmt.Sprintf("key %s of broker %s is unblocked", key, broker)
		default:
			return fmt.Sprintf("key %s of broker %s is not blocked", key, broker)
		}
	})
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
