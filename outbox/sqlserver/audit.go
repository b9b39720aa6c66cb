package sqlserver

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Auditor = (*Store)(nil)

// BeginAudit implements outbox.Auditor.
func (s *Store) BeginAudit(ctx context.Context, entry outbox.AuditEntry) (int64, error) {
	text := func(name, value string) any { return sql.Named(name, mssql.NVarCharMax(storable(value))) }
	id, err := s.audited(ctx, s.sql.auditBegin, []any{
		text("actor", entry.Actor), text("via", entry.Via), text("action", entry.Action), text("broker", entry.Broker),
		text("filter", entry.Filter), text("reason", entry.Reason),
	}, "fanout_begun")
	if err != nil {
		return 0, fmt.Errorf("sqlserver: record in %s_audit that %q begins: %w", s.table, entry.Action, err)
	}
	return id, nil
}

// EndAudit implements outbox.Auditor.
func (s *Store) EndAudit(ctx context.Context, id, rows int64, failure string) error {
	known, err := s.audited(ctx, s.sql.auditEnd, []any{
		sql.Named("id", id), sql.Named("rows", rows), sql.Named("failure", mssql.NVarCharMax(storable(failure))),
	}, "fanout_ended")
	if err == nil && known == 0 {
		err = fmt.Errorf("there is no entry %d", id)
	}
	if err != nil {
		return fmt.Errorf("sqlserver: record in %s_audit how an action ended: %w", s.table, err)
	}
	return nil
}

// audited runs a batch that answers with one number.
func (s *Store) audited(ctx context.Context, text string, args []any, set string) (int64, error) {
	var n sql.NullInt64
	err := s.browse(ctx, text, args, func() { n = sql.NullInt64{} }, resultSets{set: func(rows *sql.Rows) error { return rows.Scan(&n) }})
	if err == nil && !n.Valid {
		err = errIncomplete
	}
	return n.Int64, err
}

// Audit implements outbox.Auditor. It passes over an entry that somebody is writing.
func (s *Store) Audit(ctx context.Context, before int64, limit int) ([]outbox.AuditEntry, error) {
	if err := atLeastOne("audit", "limit", limit); err != nil {
		return nil, err
	}
	var entries []outbox.AuditEntry
	args := []any{sql.Named("before", cmp.Or(before, math.MaxInt64)), sql.Named("limit", bound(limit))}
	err := s.browse(ctx, s.sql.audit, args, func() { entries = nil }, resultSets{"fanout_entry": func(rows *sql.Rows) error {
		var (
			e     outbox.AuditEntry
			ended sql.NullTime
		)
		err := rows.Scan(&e.ID, &e.Actor, &e.Via, &e.Action, &e.Broker, &e.Filter, &e.Reason, &e.Rows, &e.StartedAt, &ended, &e.Failure)
		e.StartedAt, e.EndedAt = e.StartedAt.UTC(), utc(ended)
		entries = append(entries, e)
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("sqlserver: list %s_audit: %w", s.table, err)
	}
	return entries, nil
}
