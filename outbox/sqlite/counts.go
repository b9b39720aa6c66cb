package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// Counts implements outbox.Inspector. It reads the whole table.
func (s *Store) Counts(ctx context.Context) ([]outbox.BrokerCounts, error) {
	tally, now := outbox.Tally{}, s.micros()
	err := s.each(ctx, s.sql.counts, func(rows *sql.Rows) error {
		var (
			broker     string
			status     outbox.Status
			n, created int64
		)
		if err := rows.Scan(&broker, &status, &n, &created); err != nil {
			return err
		}
		tally.Add(broker, status, n, time.Duration(max(now-created, 0))*time.Microsecond)
		return nil
	})
	if err == nil {
		err = s.each(ctx, s.sql.lastErrors, func(rows *sql.Rows) error {
			var (
				broker, lastError string
				id                int64
			)
			if err := rows.Scan(&broker, &lastError, &id); err != nil {
				return err
			}
			tally.SetLastError(broker, lastError)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: count rows in %s: %w", s.table, explain(err))
	}
	return tally.Brokers(), nil
}

func (s *Store) each(ctx context.Context, text string, f func(*sql.Rows) error) error {
	rows, err := s.db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err tells
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
