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
	err := s.read(ctx, func(rows *sql.Rows) error {
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
	}, s.sql.counts)
	if err == nil {
		err = s.read(ctx, func(rows *sql.Rows) error {
			var broker, lastError string
			if err := rows.Scan(&broker, &lastError); err != nil {
				return err
			}
			tally.SetLastError(broker, lastError)
			return nil
		}, s.sql.lastErrors)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: count rows in %s: %w", s.table, err)
	}
	return tally.Brokers(), nil
}

// Backlog implements outbox.Inspector.
func (s *Store) Backlog(ctx context.Context) ([]outbox.Backlog, error) {
	return s.backlog(ctx, s.read)
}

func (s *Store) backlog(ctx context.Context, read reader) ([]outbox.Backlog, error) {
	var backlog []outbox.Backlog
	err := read(ctx, func(rows *sql.Rows) error {
		var (
			broker string
			lag    int64
		)
		err := rows.Scan(&broker, &lag)
		backlog = append(backlog, outbox.Backlog{Broker: broker, Lag: time.Duration(lag) * time.Microsecond})
		return err
	}, s.sql.backlog, sql.Named("now", s.micros()))
	if err != nil {
		return nil, fmt.Errorf("sqlite: read the backlog in %s: %w", s.table, err)
	}
	return backlog, nil
}
