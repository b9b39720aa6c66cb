package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the steps of the schema for a table, for "fanout migrate --print" and for other migration tools.
func Migrations(table string) ([]outbox.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("sqlite: read migrations: %w", err)
	}
	return outbox.Migrations(files, table)
}

// Migrate implements outbox.Schema. All missing steps are applied in one transaction.
func (s *Store) Migrate(ctx context.Context) ([]string, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	var applied []string
	err = s.write(ctx, func(conn *sql.Conn) error {
		applied = nil
		if _, err := conn.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+s.table+`_migrations (
			version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)`); err != nil {
			return err
		}
		done, err := s.versions(ctx, conn)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if slices.Contains(done, step.Version) {
				continue
			}
			if _, err := conn.ExecContext(ctx, step.SQL); err != nil {
				return fmt.Errorf("step %04d_%s: %w", step.Version, step.Name, err)
			}
			if _, err := conn.ExecContext(ctx, "INSERT INTO "+s.table+"_migrations (version, name, applied_at) VALUES (?, ?, ?)",
				step.Version, step.Name, s.micros()); err != nil {
				return err
			}
			applied = append(applied, fmt.Sprintf("%04d_%s", step.Version, step.Name))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: migrate %s: %w", s.table, err)
	}
	return applied, nil
}

func (s *Store) versions(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
},
) ([]int, error) {
	rows, err := db.QueryContext(ctx, "SELECT version FROM "+s.table+"_migrations ORDER BY version")
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells
	var versions []int
	for rows.Next() {
		var version int
		if err := rows.Scan(&version); err != nil {
			return nil, err
		}
		versions = append(versions, version)
	}
	return versions, rows.Err()
}

// Check implements outbox.Schema.
func (s *Store) Check(ctx context.Context) error {
	err := s.check(ctx)
	if err != nil {
		return fmt.Errorf("sqlite: check %s: %w", s.table, explain(err))
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	steps, err := Migrations(s.table)
	if err != nil {
		return err
	}
	done, err := s.versions(ctx, s.db)
	if err != nil {
		return err
	}
	var missing []string
	for _, step := range steps {
		if !slices.Contains(done, step.Version) {
			missing = append(missing, fmt.Sprintf("%04d_%s", step.Version, step.Name))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w (missing: %s)", outbox.ErrSchema, strings.Join(missing, ", "))
	}
	rows, err := s.db.QueryContext(ctx, "SELECT id, lane, parked, isolated, lock_token, payload FROM "+s.table+" LIMIT 0")
	if err != nil {
		return err
	}
	return rows.Close()
}
