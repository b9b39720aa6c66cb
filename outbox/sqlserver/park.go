package sqlserver

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gorm-fanout/fanout/outbox"
)

// Park implements outbox.Store.
func (s *Store) Park(ctx context.Context, claim *outbox.Claim) (int, error) {
	args := []any{
		sql.Named("broker", claim.Broker), sql.Named("lane", int32(claim.Lane)), //nolint:gosec // a few
		sql.Named("claim_lock", s.laneLock(claim.Broker, claim.Lane)), sql.Named("window", int64(claim.Window)),
		sql.Named("unordered", claim.Unordered),
	}
	parked := -1
	err := retry(func() error {
		return s.query(ctx, s.sql.park, args, resultSets{
			"fanout_parked": func(rows *sql.Rows) error { return rows.Scan(&parked) },
		})
	})
	if err == nil && parked < 0 {
		err = errIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("sqlserver: park waiting rows in %s: %w", s.table, explain(err))
	}
	return parked, nil
}
