package sqlserver

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Verify implements driver.Delivery, under the shard's lock: claims of the shard wait meanwhile.
func (s *Store) Verify(ctx context.Context, v *driver.Verification) ([]driver.HandedRow, error) {
	args, err := verifyArgs(v)
	if err != nil {
		return nil, err
	}
	var found []driver.HandedRow
	err = retry(func() error {
		found = nil
		return s.query(ctx, s.sql.verify, args, resultSets{"fanout_handed": func(rows *sql.Rows) error {
			var (
				h  driver.HandedRow
				id string
			)
			err := rows.Scan(&h.ID, &id, &h.Shard, &h.Attempts, &h.Crashes, &h.CreatedAt, &h.Expired, &h.Clear)
			if err != nil {
				return err
			}
			h.MessageID, err = uuid.Parse(id)
			found = append(found, h)
			return err
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlserver: verify rows in %s: %w", s.table, explain(err))
	}
	return found, nil
}

func verifyArgs(v *driver.Verification) ([]any, error) {
	messages, err := jsonList(v.MessageIDs)
	if err != nil {
		return nil, fmt.Errorf("sqlserver: %w", err)
	}
	return append(shardArgs(v.Broker, v.Shard), sql.Named("token", v.Token.String()),
		sql.Named("messages", messages), sql.Named("backlog", int64(v.Backlog)), sql.Named("unordered", v.Unordered)), nil
}
