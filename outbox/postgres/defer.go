package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Defer implements driver.Delivery.
func (s *Store) Defer(ctx context.Context, claim *driver.Claim) (int, error) {
	floors, reopened, _ := s.water.floors(claim.Broker, time.Now())
	var batch pgx.Batch
	batch.Queue(begin)
	batch.Queue(s.sql.lock, shardLock(claim.Broker, claim.Shard))
	batch.Queue(s.sql.deferRows, claim.Broker, claim.Shard, claim.Window, claim.Unordered, floors[claim.Shard], reopened[claim.Shard])
	batch.Queue("COMMIT")
	deferred, err := s.affected(ctx, &batch, 2)
	if err != nil {
		return 0, fmt.Errorf("postgres: defer waiting rows in %s: %w", s.table, err)
	}
	if deferred > 0 {
		s.water.deferred(claim.Broker, claim.Shard)
	}
	return deferred, nil
}
