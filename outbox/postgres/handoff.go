package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Verify implements driver.Delivery, in one round trip.
func (s *Store) Verify(ctx context.Context, v *driver.Verification) ([]driver.HandedRow, error) {
	ids := make([]pgtype.UUID, len(v.MessageIDs))
	for i, id := range v.MessageIDs {
		ids[i] = pgUUID(id)
	}
	floor, version := s.water.floor(v.Broker, v.Shard)
	var found []driver.HandedRow
	var batch pgx.Batch
	batch.Queue(begin)
	batch.Queue(s.sql.verifySettings)
	batch.Queue(s.sql.verify, v.Broker, v.Shard, pgUUID(v.Token), ids, floor, version, v.Backlog, v.Unordered).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, readHanded)
		return err
	})
	batch.Queue("COMMIT")
	err := s.conn(ctx, func(conn *pgx.Conn) error { return conn.SendBatch(ctx, &batch).Close() })
	if err != nil {
		return nil, fmt.Errorf("postgres: verify rows in %s: %w", s.table, err)
	}
	return found, nil
}

func readHanded(row pgx.CollectableRow) (h driver.HandedRow, err error) {
	var id pgtype.UUID
	err = row.Scan(&h.ID, &id, &h.Shard, &h.Attempts, &h.Crashes, &h.CreatedAt, &h.Expired, &h.Clear)
	h.MessageID = uuid.UUID(id.Bytes)
	return h, err
}

// floor is the mark of a shard, below which nothing is open as of a count of reopenings. Once in a
// while it is not used, like that of claims, so that what was opened without counting is seen.
func (w *lowWater) floor(broker string, shard int) (floor, version int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.line(broker, shard)
	mark := &line.class[shard/outbox.Shards]
	if !mark.full.IsZero() && time.Now().After(mark.full) { // the next claim will look at all
		return noFloor, line.version
	}
	return mark.floor, line.version
}
