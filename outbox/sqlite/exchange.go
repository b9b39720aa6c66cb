package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/gorm-fanout/fanout/outbox"
)

// Exchange implements outbox.Store: a settlement and a claim share one transaction, and so one wait for the disk. Should the claim
// fail, the settlement is made again by itself. A claim without a settlement that finds nothing to take, and no gate to move, needs
// no transaction. Batches are never Busy: a claim waits for the lock.
func (s *Store) Exchange(ctx context.Context, settlement *outbox.Settlement, claim *outbox.Claim) (outbox.Exchanged, error) {
	var result outbox.Exchanged
	if settlement != nil && len(settlement.Published)+len(settlement.Other) == 0 {
		result.Settled, settlement = &outbox.Settled{}, nil
	}
	if settlement == nil && claim == nil {
		return result, nil
	}
	if settlement == nil {
		batch, err := s.claim(ctx, claim)
		if err != nil {
			return result, fmt.Errorf("sqlite: claim in %s: %w", s.table, err)
		}
		result.Batch = batch
		return result, nil
	}
	var failed error
	if claim != nil {
		var settled bool
		if settled, failed = s.exchange(ctx, settlement, claim, &result); failed == nil {
			return result, nil
		}
		if result = (outbox.Exchanged{}); !settled { // nor would it be by itself
			return result, fmt.Errorf("sqlite: settle in %s: %w", s.table, failed)
		}
		failed = fmt.Errorf("sqlite: claim in %s: %w", s.table, failed)
	}
	err := s.write(ctx, func(conn *sql.Conn) error { return s.settleInto(ctx, conn, settlement, &result) })
	if err != nil {
		return outbox.Exchanged{}, errors.Join(fmt.Errorf("sqlite: settle in %s: %w", s.table, err), failed)
	}
	return result, failed
}

// exchange does both in one transaction. When it fails, nothing has been done; settled tells that it was not the settlement that
// failed, nor the transaction.
func (s *Store) exchange(ctx context.Context, settlement *outbox.Settlement, claim *outbox.Claim, result *outbox.Exchanged) (settled bool, err error) {
	batch := emptyBatch(claim)
	err = s.write(ctx, func(conn *sql.Conn) error {
		settled = false
		if err := s.settleInto(ctx, conn, settlement, result); err != nil {
			return err
		}
		settled = true
		due := false
		if claim.Wake {
			row := conn.QueryRowContext(ctx, s.sql.lookGates, sql.Named("broker", claim.Broker), sql.Named("lane", claim.Lane), sql.Named("now", s.micros()))
			var err error
			if _, due, err = scanGates(row); err != nil {
				return err
			}
		}
		err := s.take(ctx, conn, claim, due, &batch)
		settled = err != nil // should the commit fail, who knows
		return err
	})
	if err != nil {
		return settled, err
	}
	result.Batch = batch
	return true, nil
}

// settleInto settles and notes how many rows were lost.
func (s *Store) settleInto(ctx context.Context, conn *sql.Conn, settlement *outbox.Settlement, result *outbox.Exchanged) error {
	marked, err := s.settle(ctx, conn, settlement)
	result.Settled = &outbox.Settled{Lost: len(settlement.Published) + len(settlement.Other) - marked}
	return err
}

// Renew implements outbox.Store.
func (s *Store) Renew(ctx context.Context, lease outbox.Lease) (int, error) {
	var kept int64
	err := s.write(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, s.sql.renew, sql.Named("broker", lease.Broker), sql.Named("lane", lease.Lane),
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

// Ready implements outbox.Store.
func (s *Store) Ready(ctx context.Context, broker string) (outbox.Readiness, error) {
	var lanes []int
	err := s.read(ctx, func(rows *sql.Rows) error {
		var lane int
		err := rows.Scan(&lane)
		lanes = append(lanes, lane)
		return err
	}, s.sql.ready, sql.Named("broker", broker), sql.Named("now", s.micros()))
	if err != nil {
		return outbox.Readiness{}, fmt.Errorf("sqlite: look for ready rows in %s: %w", s.table, err)
	}
	return outbox.NewReadiness(lanes), nil
}
