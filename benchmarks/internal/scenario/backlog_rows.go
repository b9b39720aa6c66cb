package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

// oneByOne drains row by row, as one worker: a statement claims a row, a command publishes it, and
// a statement marks it.
func oneByOne(ctx context.Context, s *setup) (err error) {
	conn, err := pgx.Connect(ctx, s.database.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	h := &hand{conn: conn, client: s.streams.Client, limit: 1}
	claim, mark := driver.RenderSQL(readSQL("own_claim"), s.table.Name()), driver.RenderSQL(readSQL("own_mark"), s.table.Name())
	b := h.batch(s.stream)
	for shard := 0; shard < outbox.Shards; {
		b.places, b.texts = b.places[:0], b.texts[:0]
		rows, err := conn.Query(ctx, claim, drainBroker, shard, 1)
		if err != nil {
			return err
		}
		s.trips++
		for rows.Next() {
			b.add(rows.RawValues())
		}
		b.finish()
		if rows.Close(); rows.Err() != nil {
			return rows.Err()
		}
		if len(b.places) == 0 {
			shard++
			continue
		}
		if err := h.publish(ctx, b); err != nil {
			return err
		}
		tag, err := conn.Exec(ctx, mark, b.places)
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("scenario: %d rows were marked", tag.RowsAffected())
		}
		if err != nil {
			return err
		}
		s.trips++
	}
	return nil
}
