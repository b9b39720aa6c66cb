package sqlserver

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// Counts implements outbox.Inspector. It reads the whole table, without waiting for anybody who is writing.
func (s *Store) Counts(ctx context.Context) ([]outbox.BrokerCounts, error) {
	var tally outbox.Tally
	err := retry(func() error {
		tally = outbox.Tally{}
		if err := s.query(ctx, s.sql.counts, nil, resultSets{"fanout_counted": func(rows *sql.Rows) error {
			var (
				broker string
				status outbox.Status
				n, age int64
			)
			err := rows.Scan(&broker, &status, &n, &age)
			tally.Add(broker, status, n, time.Duration(age)*time.Microsecond)
			return err
		}}); err != nil {
			return err
		}
		return s.query(ctx, s.sql.lastErrors, nil, resultSets{"fanout_failed": func(rows *sql.Rows) error {
			var broker, lastError string
			err := rows.Scan(&broker, &lastError)
			tally.SetLastError(broker, lastError)
			return err
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlserver: count rows in %s: %w", s.table, explain(err))
	}
	return tally.Brokers(), nil
}

// Backlog implements outbox.Inspector, without waiting for anybody who is writing.
func (s *Store) Backlog(ctx context.Context) ([]outbox.Backlog, error) {
	var backlog []outbox.Backlog
	err := retry(func() error {
		backlog = nil
		return s.query(ctx, s.sql.backlog, nil, resultSets{"fanout_behind": func(rows *sql.Rows) error {
			var (
				broker string
				lag    int64
			)
			err := rows.Scan(&broker, &lag)
			backlog = append(backlog, outbox.Backlog{Broker: broker, Lag: time.Duration(lag) * time.Microsecond})
			return err
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlserver: read the backlog in %s: %w", s.table, explain(err))
	}
	return backlog, nil
}
