package sqlserver

import (
	"context"
	"database/sql"
	"fmt"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Pauser = (*Store)(nil)

// Pause implements outbox.Pauser.
func (s *Store) Pause(ctx context.Context, pause outbox.Pause) (changed bool, err error) {
	if err := pause.Validate(); err != nil {
		return false, fmt.Errorf("sqlserver: %w", err)
	}
	args := []any{
		sql.Named("broker", pause.Broker), sql.Named("by", mssql.NVarCharMax(storable(pause.By))),
		sql.Named("reason", mssql.NVarCharMax(storable(pause.Reason))),
	}
	n, err := s.number(ctx, s.sql.pause, args, "fanout_paused")
	if err != nil {
		return false, fmt.Errorf("sqlserver: pause broker %q in %s_pauses: %w", pause.Broker, s.table, err)
	}
	return n > 0, nil
}

// Resume implements outbox.Pauser.
func (s *Store) Resume(ctx context.Context, broker string) (changed bool, err error) {
	n, err := s.number(ctx, s.sql.resume, []any{sql.Named("broker", broker)}, "fanout_resumed")
	if err != nil {
		return false, fmt.Errorf("sqlserver: resume broker %q in %s_pauses: %w", broker, s.table, err)
	}
	return n > 0, nil
}

// Pauses implements outbox.Pauser.
func (s *Store) Pauses(ctx context.Context) ([]outbox.Pause, error) {
	var pauses []outbox.Pause
	err := retry(func() error {
		pauses = nil
		return s.query(ctx, s.sql.pauses, nil, resultSets{"fanout_pause": func(rows *sql.Rows) error {
			var p outbox.Pause
			err := rows.Scan(&p.Broker, &p.Since, &p.By, &p.Reason)
			p.Since = p.Since.UTC()
			pauses = append(pauses, p)
			return err
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlserver: list %s_pauses: %w", s.table, explain(err))
	}
	return pauses, nil
}
