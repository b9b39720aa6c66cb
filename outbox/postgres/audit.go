package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Auditor = (*Store)(nil)

// BeginAudit implements outbox.Auditor.
func (s *Store) BeginAudit(ctx context.Context, entry outbox.AuditEntry) (id int64, err error) {
	err = s.transaction(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.sql.auditBegin, storable(entry.Actor), storable(entry.Via), storable(entry.Action), storable(entry.Broker),
			storable(entry.Filter), storable(entry.Reason)).Scan(&id)
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: record in %s_audit that %s begins: %w", s.table, entry.Action, err)
	}
	return id, nil
}

// EndAudit implements outbox.Auditor.
func (s *Store) EndAudit(ctx context.Context, id, rows int64, failure string) error {
	if _, err := s.changes(ctx, s.sql.auditEnd, id, rows, storable(failure)); err != nil {
		return fmt.Errorf("postgres: record in %s_audit how action %d has ended: %w", s.table, id, err)
	}
	return nil
}

// Audit implements outbox.Auditor.
func (s *Store) Audit(ctx context.Context, before int64, limit int) ([]outbox.AuditEntry, error) {
	if limit < 1 {
		return nil, fmt.Errorf("postgres: audit: the limit is %d: it must be at least 1", limit)
	}
	if before <= 0 {
		before = math.MaxInt64
	}
	var entries []outbox.AuditEntry
	err := s.look(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.sql.audit, before, limit)
		if err != nil {
			return err
		}
		entries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e outbox.AuditEntry, err error) {
			var ended *time.Time
			err = row.Scan(&e.ID, &e.Actor, &e.Via, &e.Action, &e.Broker, &e.Filter, &e.Reason, &e.Rows, &e.StartedAt, &ended, &e.Failure)
			e.StartedAt, e.EndedAt = e.StartedAt.UTC(), utc(ended)
			return e, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: list %s_audit: %w", s.table, err)
	}
	return entries, nil
}
