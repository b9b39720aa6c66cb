package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Defer implements driver.Delivery.
func (s *Store) Defer(ctx context.Context, claim *driver.Claim) (int, error) {
	var deferred int64
	err := s.write(ctx, func(conn *sql.Conn) error {
		now, unordered := sql.Named("now", s.micros()), sql.Named("unordered", claim.Unordered)
		var resting, behind string
		if err := conn.QueryRowContext(ctx, s.sql.deferRows, sql.Named("broker", claim.Broker), sql.Named("shard", claim.Shard),
			sql.Named("window", claim.Window), unordered, now).Scan(&resting, &behind); err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, s.sql.deferBlocks, sql.Named("ids", resting), unordered, now); err != nil {
			return err
		}
		var err error
		deferred, err = s.setDeferred(ctx, conn, behind, true)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: defer waiting rows in %s: %w", s.table, err)
	}
	return int(deferred), nil
}

func (s *Store) setDeferred(ctx context.Context, conn *sql.Conn, ids string, deferred bool) (int64, error) {
	result, err := conn.ExecContext(ctx, s.sql.setDeferred, sql.Named("ids", ids), sql.Named("deferred", deferred))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
