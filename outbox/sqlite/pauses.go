package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Pauser = (*Store)(nil)

// Pause implements outbox.Pauser.
func (s *Store) Pause(ctx context.Context, pause outbox.Pause) (changed bool, err error) {
	if err := pause.Validate(); err != nil {
		return false, fmt.Errorf("sqlite: %w", err)
	}
	if changed, err = s.changes(ctx, s.sql.pause, sql.Named("broker", pause.Broker), sql.Named("by", storable(pause.By)),
		sql.Named("reason", storable(pause.Reason)), sql.Named("now", s.micros())); err != nil {
		return false, fmt.Errorf("sqlite: pause broker %q in %s_pauses: %w", pause.Broker, s.table, err)
	}
	return changed, nil
}

// Resume implements outbox.Pauser.
func (s *Store) Resume(ctx context.Context, broker string) (changed bool, err error) {
	if changed, err = s.changes(ctx, s.sql.resume, sql.Named("broker", broker)); err != nil {
		return false, fmt.Errorf("sqlite: resume broker %q in %s_pauses: %w", broker, s.table, err)
	}
	return changed, nil
}

// changes runs a statement and says whether it has changed anything.
func (s *Store) changes(ctx context.Context, text string, args ...any) (changed bool, err error) {
	err = s.write(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, text, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		changed = n > 0
		return err
	})
	return changed, err
}

// Pauses implements outbox.Pauser.
func (s *Store) Pauses(ctx context.Context) ([]outbox.Pause, error) {
	var pauses []outbox.Pause
	err := s.read(ctx, func(rows *sql.Rows) error {
		var (
			p     outbox.Pause
			since int64
		)
		err := rows.Scan(&p.Broker, &since, &p.By, &p.Reason)
		p.Since = time.UnixMicro(since).UTC()
		pauses = append(pauses, p)
		return err
	}, s.sql.pauses)
	if err != nil {
		return nil, fmt.Errorf("sqlite: list %s_pauses: %w", s.table, err)
	}
	return pauses, nil
}
