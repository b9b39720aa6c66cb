package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Verify implements driver.Delivery.
func (s *Store) Verify(ctx context.Context, v *driver.Verification) ([]driver.HandedRow, error) {
	ids, err := json.Marshal(v.MessageIDs)
	if err != nil {
		return nil, fmt.Errorf("sqlite: encode message ids: %w", err)
	}
	var found []driver.HandedRow
	err = s.read(ctx, func(rows *sql.Rows) error {
		var (
			h       driver.HandedRow
			id      string
			created int64
		)
		err := rows.Scan(&h.ID, &id, &h.Shard, &h.Attempts, &h.Crashes, &created, &h.Expired, &h.Clear)
		if err != nil {
			return err
		}
		h.CreatedAt = time.UnixMicro(created).UTC()
		h.MessageID, err = uuid.Parse(id)
		found = append(found, h)
		return err
	}, s.sql.verify, sql.Named("broker", v.Broker), sql.Named("shard", v.Shard), sql.Named("token", v.Token.String()),
		sql.Named("messages", string(ids)), sql.Named("backlog", v.Backlog), sql.Named("unordered", v.Unordered), sql.Named("now", s.micros()))
	if err != nil {
		return nil, fmt.Errorf("sqlite: verify rows in %s: %w", s.table, err)
	}
	return found, nil
}
