package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/gorm-fanout/fanout/outbox"
)

// Park implements outbox.Store.
func (s *Store) Park(ctx context.Context, claim *outbox.Claim) (int, error) {
	var parked int64
	err := s.write(ctx, func(conn *sql.Conn) error {
		now, unordered := sql.Named("now", s.micros()), sql.Named("unordered", claim.Unordered)
		var resting, behind string
		if err := conn.QueryRowContext(ctx, s.sql.park, sql.Named("broker", claim.Broker), sql.Named("lane", claim.Lane),
			sql.Named("window", claim.Window), unordered, now).Scan(&resting, &behind); err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, s.sql.parkGates, sql.Named("ids", resting), unordered, now); err != nil {
			return err
		}
		var err error
		parked, err = s.setParked(ctx, conn, behind, true)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: park waiting rows in %s: %w", s.table, err)
	}
	return int(parked), nil
}

func (s *Store) setParked(ctx context.Context, conn *sql.Conn, ids string, parked bool) (int64, error) {
	result, err := conn.ExecContext(ctx, s.sql.setParked, sql.Named("ids", ids), sql.Named("parked", parked))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
