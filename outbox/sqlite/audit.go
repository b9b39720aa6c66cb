package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Auditor = (*Store)(nil)

// BeginAudit implements outbox.Auditor. What SQLite cannot hold is replaced in the texts.
func (s *Store) BeginAudit(ctx context.Context, entry outbox.AuditEntry) (id int64, err error) {
	args := []any{sql.Named("now", s.micros())}
	for _, text := range []struct{ name, value string }{
		{"actor", entry.Actor}, {"via", entry.Via}, {"action", entry.Action}, {"broker", entry.Broker}, {"filter", entry.Filter}, {"reason", entry.Reason},
	} {
		args = append(args, sql.Named(text.name, storable(text.value)))
	}
	err = s.write(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, s.sql.auditBegin, args...)
		if err != nil {
			return err
		}
		id, err = result.LastInsertId()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: record an action in %s_audit: %w", s.table, err)
	}
	return id, nil
}

// EndAudit implements outbox.Auditor. It is no error that there is no such entry any more.
func (s *Store) EndAudit(ctx context.Context, id, rows int64, failure string) error {
	_, err := s.changes(ctx, s.sql.auditEnd, sql.Named("id", id), sql.Named("now", s.micros()), sql.Named("rows", rows), sql.Named("failure", storable(failure)))
	if err != nil {
		return fmt.Errorf("sqlite: record the end of action %d in %s_audit: %w", id, s.table, err)
	}
	return nil
}

// Audit implements outbox.Auditor.
func (s *Store) Audit(ctx context.Context, before int64, limit int) ([]outbox.AuditEntry, error) {
	if limit < 1 {
		return nil, fmt.Errorf("sqlite: audit: the limit is %d: it must be at least 1", limit)
	}
	var entries []outbox.AuditEntry
	err := s.ask(ctx, func(rows *sql.Rows) error {
		var (
			e              outbox.AuditEntry
			started, ended int64
		)
		err := rows.Scan(&e.ID, &started, &ended, &e.Actor, &e.Via, &e.Action, &e.Broker, &e.Filter, &e.Reason, &e.Rows, &e.Failure)
		e.StartedAt, e.EndedAt = time.UnixMicro(started).UTC(), moment(ended)
		entries = append(entries, e)
		return err
	}, s.sql.audit, sql.Named("before", cmp.Or(before, math.MaxInt64)), sql.Named("limit", limit))
	if err != nil {
		return nil, fmt.Errorf("sqlite: list %s_audit: %w", s.table, err)
	}
	return entries, nil
}
