package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gorm-fanout/fanout/outbox"
)

// Exchange implements outbox.Store: one transaction for the settlement and one for the claim. A claim that finds nothing
// to take, and no gate to move, needs no transaction. Batches are never Busy: a claim waits for the lock.
func (s *Store) Exchange(ctx context.Context, settlement *outbox.Settlement, claim *outbox.Claim) (outbox.Exchanged, error) {
	var result outbox.Exchanged
	if settlement != nil {
		settled, err := s.settle(ctx, settlement)
		if err != nil {
			return result, fmt.Errorf("sqlite: settle in %s: %w", s.table, err)
		}
		result.Settled = settled
	}
	if claim != nil {
		batch, err := s.claim(ctx, claim)
		if err != nil {
			return result, fmt.Errorf("sqlite: claim in %s: %w", s.table, err)
		}
		result.Batch = batch
	}
	return result, nil
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
