package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox"
)

// FinishedBrokers implements outbox.Purger.
func (s *Store) FinishedBrokers(ctx context.Context) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, s.sql.finishedBrokers)
	if err != nil {
		return nil, fmt.Errorf("sqlite: list brokers in %s: %w", s.table, explain(err))
	}
	defer rows.Close() //nolint:errcheck // Err tells
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("sqlite: list brokers in %s: %w", s.table, err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
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

// exclusiveFor is how long a lock outlives the process that held it. Whoever needs longer may meet a second runner,
// which costs work and breaks nothing.
const exclusiveFor = 15 * time.Minute

// Exclusive implements outbox.Purger with a row that names the holder: SQLite has no locks but that of the writer.
func (s *Store) Exclusive(ctx context.Context, name string, f func(context.Context) error) (ran bool, err error) {
	token, err := uuid.NewRandom()
	if err != nil {
		return false, fmt.Errorf("sqlite: make a token: %w", err)
	}
	holder := []any{sql.Named("name", name), sql.Named("token", token.String())}
	err = s.write(ctx, func(conn *sql.Conn) error {
		now := s.micros()
		result, err := conn.ExecContext(ctx, s.sql.lock, append(holder, sql.Named("now", now), sql.Named("until", now+exclusiveFor.Microseconds()))...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		ran = n > 0
		return err
	})
	if err != nil || !ran {
		if err != nil {
			err = fmt.Errorf("sqlite: take the lock %q of %s: %w", name, s.table, err)
		}
		return false, err
	}
	defer func() {
		// The lock is given back even when ctx has ended.
		release := s.write(context.WithoutCancel(ctx), func(conn *sql.Conn) error {
			_, err := conn.ExecContext(context.WithoutCancel(ctx), s.sql.unlock, holder...)
			return err
		})
		if err == nil && release != nil {
			err = fmt.Errorf("sqlite: give back the lock %q of %s: %w", name, s.table, release)
		}
	}()
	return true, f(ctx)
}
