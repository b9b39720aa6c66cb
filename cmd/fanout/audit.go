package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// wireAudit is one entry of the audit.
type wireAudit struct {
	Database  string          `json:"database"`
	ID        int64           `json:"id"`
	Actor     string          `json:"actor"`
	Via       string          `json:"via"`
	Action    string          `json:"action"`
	Broker    string          `json:"broker,omitempty"`
	Filter    json.RawMessage `json:"filter,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Rows      int64           `json:"rows"`
	StartedAt *time.Time      `json:"started_at"`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
	Failure   string          `json:"failure,omitempty"`
}

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
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		table, found := newTable(cmd.OutOrStdout(), "ID", "DATABASE", "WHEN", "WHO", "ACTION", "BROKER", "ROWS", "TOOK", "FILTER", "REASON", "FAILURE"), 0
		err = session.each(func(database string) error {
			entries, err := session.Audit(cmd.Context(), database, *before, *limit)
			for i := range entries {
				e := &entries[i]
				found++
				if !*asJSON {
					table.add(text(strconv.FormatInt(e.ID, 10)), text(database), text(moment(e.StartedAt)), text(orDash(e.Actor)+" ("+e.Via+")"), styled(e.Action, bold),
						text(orDash(e.Broker)), text(thousands(e.Rows)), took(e), text(orDash(e.Filter)), text(orDash(e.Reason)), styled(orDash(e.Failure), failureStyle(e)))
				} else if err := printLine(cmd, toAudit(database, e)); err != nil {
					return err
				}
			}
			return err
		})
		switch {
		case !*asJSON && found > 0:
			err = errors.Join(err, table.print(cmd.OutOrStdout()))
		case !*asJSON && err == nil:
			cmd.PrintErrln("nobody has done anything")
		}
		return err
	}
	return cmd
}

func toAudit(database string, e *admin.AuditEntry) wireAudit {
	line := wireAudit{
		Database: database, ID: e.ID, Actor: e.Actor, Via: e.Via, Action: e.Action, Broker: e.Broker, Reason: e.Reason, Rows: e.Rows,
		StartedAt: toTime(e.StartedAt), EndedAt: toTime(e.EndedAt), Failure: e.Failure,
	}
	if json.Valid([]byte(e.Filter)) {
		line.Filter = json.RawMessage(e.Filter)
	}
	return line
}

// took shows how long it took; what has not ended is under way, or its process died.
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
