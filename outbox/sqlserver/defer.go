package sqlserver

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Defer implements driver.Delivery.
func (s *Store) Defer(ctx context.Context, claim *driver.Claim) (int, error) {
	args := []any{
		sql.Named("broker", claim.Broker), sql.Named("shard", int32(claim.Shard)), //nolint:gosec // a few
		sql.Named("claim_lock", s.shardLock(claim.Broker, claim.Shard)), sql.Named("window", int64(claim.Window)),
		sql.Named("unordered", claim.Unordered),
	}
	deferred := -1
	err := retry(func() error {
		return s.query(ctx, s.sql.deferRows, args, resultSets{
			"fanout_deferred": func(rows *sql.Rows) error { return rows.Scan(&deferred) },
		})
	})
	if err == nil && deferred < 0 {
		err = errIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("sqlserver: defer waiting rows in %s: %w", s.table, explain(err))
	}
	return deferred, nil
}
