package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gorm-fanout/fanout/outbox"
)

// FinishedBrokers implements outbox.Purger.
func (s *Store) FinishedBrokers(ctx context.Context) ([]string, error) {
	var names []string
	err := s.read(ctx, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, s.sql.finishedBrokers)
	if err != nil {
		return nil, fmt.Errorf("sqlite: list brokers in %s: %w", s.table, err)
	}
	return names, nil
}

// Purge implements outbox.Purger.
func (s *Store) Purge(ctx context.Context, request outbox.PurgeRequest) (int, error) {
	if !request.Status.Terminal() {
		return 0, fmt.Errorf("sqlite: purge rows in status %q: only published and abandoned rows can be purged", request.Status)
	}
	var removed int64
	err := s.write(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, s.sql.purge, sql.Named("broker", request.Broker), sql.Named("status", string(request.Status)),
			sql.Named("before", s.micros()-request.Retention.Microseconds()), sql.Named("limit", request.Limit))
		if err != nil {
			return err
		}
		removed, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: purge %s rows of broker %q in %s: %w", request.Status, request.Broker, s.table, err)
	}
	return int(removed), nil
}
