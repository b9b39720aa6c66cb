package postgres

import (
	"context"
	"fmt"
	"slices"
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

// Ready implements driver.Delivery. Where a full look is due and takes long, it goes on beside the polls,
// which go by the marks meanwhile.
func (s *Store) Ready(ctx context.Context, broker string, busy wakeup.Set) (ready driver.Readiness, err error) {
	if due, slow := s.water.due(broker, time.Now()); due {
		found := make(chan error, 1)
		var all driver.Readiness
		go func() { //nolint:contextcheck // it outlives the poll
			ctx, cancel := context.WithTimeout(s.closing, lookTime)
			defer cancel()
			defer func() {
				if panicked := recover(); panicked != nil { // in a hook of the pool, perhaps: a poll that panics ends no process
					found <- fmt.Errorf("postgres: look for ready rows in %s: panic: %v", s.table, panicked)
				}
			}()
			var err error
			all, err = s.fullLook(ctx, broker)
			found <- err
		}()
		select {
		case err := <-found:
			return all, err
		case <-time.After(slow):
		case <-ctx.Done():
		}
	}
	return s.ready(ctx, broker, busy, false)
}

// fullLook polls without marks, and lowers those above rows that it should not have found.
func (s *Store) fullLook(ctx context.Context, broker string) (ready driver.Readiness, err error) {
	began, first := time.Now(), map[int]int64{}
	defer func() { s.water.looked(broker, first, began, time.Now()) }()
	ready, err = s.ready(ctx, broker, 0, true) // shards that are left out might have such rows
	if err != nil || len(ready.Shards) == 0 {
		return ready, err
	}
	marks := s.water.marks(broker, false)
	for shard, above := range marks.above {
		switch {
		case !slices.Contains(ready.Shards, shard):
			marks.floors[shard] = noFloor
		case marks.writers[shard] != "{}":
			marks.floors[shard] = max(marks.floors[shard], above)
		}
	}
	x := exchange{store: s}
	x.send(nil, s.sql.planSettings)
	x.send(func(answers pgx.BatchResults) error {
		rows, err := answers.Query()
		if err != nil {
			return err
		}
		var (
			shard int
			id    int64
		)
		_, err = pgx.ForEachRow(rows, []any{&shard, &id}, func() error { first[shard] = id; return nil })
		return err
	}, s.sql.below, broker, marks.floors)
	if err := x.flush(ctx); err != nil {
		return driver.Readiness{}, fmt.Errorf("postgres: look for open rows below the marks of %s: %w", s.table, err)
	}
	return ready, nil
}

// ready polls, by the marks or without.
func (s *Store) ready(ctx context.Context, broker string, busy wakeup.Set, full bool) (driver.Readiness, error) {
	var shards []int
	marks := s.water.marks(broker, full)
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
	return driver.NewReadiness(shards), nil
}
