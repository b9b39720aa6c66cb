package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/outbox"
)

// Counts implements outbox.Inspector. It reads every open row; of finished ones it reads the index alone, where vacuum has
// passed since they were finished.
func (s *Store) Counts(ctx context.Context) ([]outbox.BrokerCounts, error) {
	tally := outbox.Tally{}
	err := s.conn(ctx, func(conn *pgx.Conn) error {
		options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error { return s.count(ctx, tx, tally) })
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: count rows in %s: %w", s.table, err)
	}
	return tally.Brokers(), nil
}

func (s *Store) count(ctx context.Context, tx pgx.Tx, tally outbox.Tally) error {
	if _, err := tx.Exec(ctx, s.sql.inspectSettings); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, s.sql.counts)
	if err != nil {
		return err
	}
	var (
		broker, lastError string
		status            outbox.Status
		n, age            int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&broker, &status, &n, &age}, func() error {
		tally.Add(broker, status, n, time.Duration(age)*time.Microsecond)
		return nil
	}); err != nil {
		return err
	}
	rows, err = tx.Query(ctx, s.sql.lastErrors)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, []any{&broker, &lastError}, func() error {
		tally.SetLastError(broker, lastError)
		return nil
	})
	return err
}

// Backlog implements outbox.Inspector.
func (s *Store) Backlog(ctx context.Context) ([]outbox.Backlog, error) {
	var backlog []outbox.Backlog
	err := s.conn(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.sql.backlog)
		if err != nil {
			return err
		}
		var (
			broker string
			lag    int64
		)
		_, err = pgx.ForEachRow(rows, []any{&broker, &lag}, func() error {
			backlog = append(backlog, outbox.Backlog{Broker: broker, Lag: time.Duration(lag) * time.Microsecond})
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: read the backlog in %s: %w", s.table, err)
	}
	return backlog, nil
}
