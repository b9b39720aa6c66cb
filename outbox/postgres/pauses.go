package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Pauser = (*Store)(nil)

// Pause implements outbox.Pauser.
func (s *Store) Pause(ctx context.Context, pause outbox.Pause) (changed bool, err error) {
	if err := pause.Validate(); err != nil {
		return false, fmt.Errorf("postgres: %w", err)
	}
	if changed, err = s.changes(ctx, s.sql.pause, pause.Broker, storable(pause.By), storable(pause.Reason)); err != nil {
		return false, fmt.Errorf("postgres: pause broker %q in %s_pauses: %w", pause.Broker, s.table, err)
	}
	return changed, nil
}

// Resume implements outbox.Pauser. Relays that listen go on at once.
func (s *Store) Resume(ctx context.Context, broker string) (changed bool, err error) {
	if changed, err = s.changes(ctx, s.sql.resume, broker); err != nil {
		return false, fmt.Errorf("postgres: resume broker %q in %s_pauses: %w", broker, s.table, err)
	}
	if changed {
		s.announceChange(ctx, broker)
	}
	return changed, nil
}

// changes runs a statement and says whether it has changed anything.
func (s *Store) changes(ctx context.Context, text string, args ...any) (changed bool, err error) {
	err = s.transaction(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, text, args...)
		changed = tag.RowsAffected() > 0
		return err
	})
	return changed, err
}

// Pauses implements outbox.Pauser.
func (s *Store) Pauses(ctx context.Context) ([]outbox.Pause, error) {
	var pauses []outbox.Pause
	err := s.conn(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.sql.pauses)
		if err != nil {
			return err
		}
		pauses, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p outbox.Pause, err error) {
			var since time.Time
			err = row.Scan(&p.Broker, &since, &p.By, &p.Reason)
			p.Since = since.UTC()
			return p, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: list %s_pauses: %w", s.table, err)
	}
	return pauses, nil
}
