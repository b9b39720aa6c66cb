package sqlserver

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

// Renew implements driver.Delivery.
func (s *Store) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	args := append(append(shardArgs(lease.Broker, lease.Shard),
		sql.Named("token", lease.Token.String()), sql.Named("first", lease.FirstID), sql.Named("last", lease.LastID),
	), durationArgs("lease", lease.Duration)...)
	kept := -1
	err := retry(ctx, func() error {
		return s.query(ctx, s.sql.renew, args, resultSets{
			"fanout_renewed": func(rows *sql.Rows) error { return rows.Scan(&kept) },
		})
	})
	if err == nil && kept < 0 {
		err = errIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("sqlserver: renew a lease in %s: %w", s.table, explain(err))
	}
	return kept, nil
}

// Ready implements driver.Delivery.
func (s *Store) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	var shards []int
	err := retry(ctx, func() error {
		shards = nil
		return s.query(ctx, s.sql.ready, []any{sql.Named("broker", broker), sql.Named("busy", int64(busy))}, resultSets{
			"fanout_shard": func(rows *sql.Rows) error {
				var shard int
				err := rows.Scan(&shard)
				shards = append(shards, shard)
				return err
			},
		})
	})
	if err != nil {
		return driver.Readiness{}, fmt.Errorf("sqlserver: look for ready rows in %s: %w", s.table, explain(err))
	}
	return driver.NewReadiness(shards), nil
}
