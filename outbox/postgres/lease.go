package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

// Renew implements driver.Delivery.
func (s *Store) Renew(ctx context.Context, lease driver.Lease) (int, error) {
	var kept int
	err := contention.Retry(ctx, s.patience, brokenOff, func() error {
		x := exchange{store: s}
		x.send(nil, begin)
		x.send(nil, s.sql.lock, shardLock(lease.Broker, lease.Shard))
		x.send(x.countMarked, s.sql.renew, lease.Broker, lease.Shard, pgUUID(lease.Token), lease.FirstID, lease.LastID, lease.Duration.Microseconds())
		x.send(nil, "COMMIT")
		err := x.flush(ctx)
		kept = x.marked
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: renew a lease in %s: %w", s.table, err)
	}
	return kept, nil
}

// sessionShard is what ready.sql answers for the session alone.
const sessionShard = -2

// Ready implements driver.Delivery.
func (s *Store) Ready(ctx context.Context, broker string, busy wakeup.Set) (driver.Readiness, error) {
	var shards []int
	began := time.Now()
	marks, full := s.water.marks(broker, began)
	if full { // what is learned of shards that are left out would be wrong
		busy = 0
	}
	err := s.conn(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.sql.ready, broker, marks.floors, marks.versions, int64(busy), marks.sessions, marks.writers, marks.above)
		if err != nil {
			return err
		}
		var (
			shard   int
			session int64
		)
		_, err = pgx.ForEachRow(rows, []any{&shard, &session, nil}, func() error {
			if shard != sessionShard {
				shards = append(shards, shard)
			}
			return nil
		})
		if err == nil {
			s.water.met(session)
		}
		return err
	})
	if err != nil {
		return driver.Readiness{}, fmt.Errorf("postgres: look for ready rows in %s: %w", s.table, err)
	}
	ready := driver.NewReadiness(shards)
	if full && !ready.Paused { // of a broker that is paused nothing was looked at
		s.water.looked(broker, shards, began, time.Now())
	}
	return ready, nil
}
