package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/outbox"
)

// Park implements outbox.Store.
func (s *Store) Park(ctx context.Context, claim *outbox.Claim) (int, error) {
	floors, reopened, _ := s.water.floors(claim.Broker, time.Now())
	var batch pgx.Batch
	batch.Queue(begin)
	batch.Queue(s.sql.lock, laneLock(claim.Broker, claim.Lane))
	batch.Queue(s.sql.park, claim.Broker, claim.Lane, claim.Window, claim.Unordered, floors[claim.Lane], reopened[claim.Lane])
	batch.Queue("COMMIT")
	parked, err := s.affected(ctx, &batch, 2)
	if err != nil {
		return 0, fmt.Errorf("postgres: park waiting rows in %s: %w", s.table, err)
	}
	if parked > 0 {
		s.water.parked(claim.Broker, claim.Lane)
	}
	return parked, nil
}
