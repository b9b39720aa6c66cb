package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show what operators have done, newest first",
		Args:  noArgs,
	}
	target := targetFlags(cmd)
	limit := cmd.Flags().Int("limit", 50, "most entries to show of each database")
	before := cmd.Flags().Int64("before", 0, "only entries before this `id`")
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 1 || *before < 0 {
			return usageError{fmt.Errorf("--limit is %d and --before is %d: use a limit of at least 1, and the id of an entry", *limit, *before)}
		}
		out := newOutput(cmd, *asJSON, "ID", "DATABASE", "WHEN", "WHO", "ACTION", "BROKER", "ROWS", "TOOK", "FILTER", "REASON", "FAILURE")
		return target.show(out, "", "nothing was recorded", func(session *session, database string) error {
			entries, err := session.Audit(cmd.Context(), database, *before, *limit)
			for i := range entries {
				e := &entries[i]
				if err := out.add(api.NewAuditEntry(database, e),
					text(strconv.FormatInt(e.ID, 10)), text(database), text(moment(e.StartedAt)), text(orDash(e.Actor)+" ("+e.Via+")"), styled(e.Action, bold),
					text(orDash(e.Broker)), text(thousands(e.Rows)), took(e), text(orDash(e.Filter)), text(orDash(e.Reason)),
					styled(orDash(e.Failure), failureStyle(e))); err != nil {
					return err
				}
			}
			return err
		})
	}
	return cmd
}

// took shows the duration of an action. One without an end is in progress, or its process crashed.
func took(e *admin.AuditEntry) cell {
	if e.EndedAt.IsZero() {
		return styled("not ended", yellow)
	}
	return text(age(max(time.Millisecond, e.EndedAt.Sub(e.StartedAt))))
}

func failureStyle(e *admin.AuditEntry) style {
	if e.Failure != "" {
		return red
	}
	return plain
}
