package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Holder implements driver.Delivery. It sees whoever has the lock, be it a relay, a command or a
// session by hand; what one of another role does, the server tells members of pg_read_all_stats alone.
func (s *Store) Holder(ctx context.Context, broker string, shard int) (holder driver.Holder, err error) {
	err = s.conn(ctx, func(conn *pgx.Conn) error {
		row := conn.QueryRow(ctx, s.sql.holder, shardLock(broker, shard), s.heldLong.Microseconds(), s.silence.Microseconds())
		if err := row.Scan(&holder.Session, &holder.Ended); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	if err != nil {
		return driver.Holder{}, fmt.Errorf("postgres: look who has a shard of %s: %w", s.table, explain(err))
	}
	return holder, nil
}
