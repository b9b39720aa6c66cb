package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

// Exchange implements driver.Delivery: a completion and a claim share one transaction, and so one
// wait for the disk. Should the claim fail, the completion is made again by itself. A claim without
// a completion that finds nothing to take, and no block to move, needs no transaction. Batches are
// never Busy: a claim waits for the lock.
func (s *Store) Exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	var result driver.Exchanged
	if completion != nil && len(completion.Published)+len(completion.Other) == 0 {
		result.Completed, completion = &driver.Completed{}, nil
	}
	if completion == nil && claim == nil {
		return result, nil
	}
	if completion == nil {
		batch, err := s.claim(ctx, claim)
		if err != nil {
			return result, fmt.Errorf("sqlite: claim in %s: %w", s.table, err)
		}
		result.Batch = batch
		return result, nil
	}
	var failed error
	if claim != nil {
		var completed bool
		if completed, failed = s.exchange(ctx, completion, claim, &result); failed == nil {
			return result, nil
		}
		if result = (driver.Exchanged{}); !completed { // nor would it be by itself
			return result, fmt.Errorf("sqlite: complete in %s: %w", s.table, failed)
		}
		failed = fmt.Errorf("sqlite: claim in %s: %w", s.table, failed)
	}
	err := s.write(ctx, func(conn *sql.Conn) error { return s.completeInto(ctx, conn, completion, &result) })
	if err != nil {
		return driver.Exchanged{}, errors.Join(fmt.Errorf("sqlite: complete in %s: %w", s.table, err), failed)
	}
	return result, failed
}

// exchange does both in one transaction. When it fails, nothing has been done; completed tells that
// it was not the completion that failed, nor the transaction.
func (s *Store) exchange(ctx context.Context, completion *driver.Completion, claim *driver.Claim, result *driver.Exchanged) (completed bool, err error) {
	batch := emptyBatch(claim)
	err = s.write(ctx, func(conn *sql.Conn) error {
		completed = false
		if err := s.completeInto(ctx, conn, completion, result); err != nil {
			return err
		}
		completed = true
		err := s.claimIn(ctx, conn, claim, &batch)
		completed = err != nil // should the commit fail, who knows
		return err
	})
	if err != nil {
		return completed, err
	}
	result.Batch = batch
	return true, nil
}

// completeInto completes and notes how many rows were lost.
func (s *Store) completeInto(ctx context.Context, conn *sql.Conn, completion *driver.Completion, result *driver.Exchanged) error {
	marked, err := s.complete(ctx, conn, completion)
	result.Completed = &driver.Completed{Lost: len(completion.Published) + len(completion.Other) - marked}
	return err
}

// Renew implements driver.Delivery.
func (s *Store) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	var kept int64
	err := s.write(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, s.sql.renew, sql.Named("broker", lease.Broker), sql.Named("shard", lease.Shard),
			sql.Named("token", lease.Token.String()), sql.Named("first", lease.FirstID), sql.Named("last", lease.LastID),
			sql.Named("now", s.micros()), sql.Named("lease", lease.Duration.Microseconds()))
		if err != nil {
			return err
		}
		kept, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: renew a lease in %s: %w", s.table, err)
	}
	return int(kept), nil
}

// Ready implements driver.Delivery.
func (s *Store) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	var shards []int
	err := s.read(ctx, func(rows *sql.Rows) error {
		var shard int
		err := rows.Scan(&shard)
		shards = append(shards, shard)
		return err
	}, s.sql.ready, sql.Named("broker", broker), sql.Named("now", s.micros()), sql.Named("busy", int64(busy)))
	if err != nil {
		return driver.Readiness{}, fmt.Errorf("sqlite: look for ready rows in %s: %w", s.table, err)
	}
	return driver.NewReadiness(shards), nil
}
