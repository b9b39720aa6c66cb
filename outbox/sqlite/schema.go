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
			insert := "INSERT INTO " + s.table + "_migrations (version, name, applied_at) VALUES (?, ?, ?)" //nolint:gosec // a checked name
			if _, err := conn.ExecContext(ctx, insert, step.Version, step.Name, s.micros()); err != nil {
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

func (s *Store) versions(ctx context.Context, conn *sql.Conn) ([]int, error) {
	rows, err := conn.QueryContext(ctx, "SELECT version FROM "+s.table+"_migrations") //nolint:gosec // a checked name
	if err != nil {
		return nil, err
	}
	var versions []int
	err = each(rows, func(rows *sql.Rows) error {
		var version int
		err := rows.Scan(&version)
		versions = append(versions, version)
		return err
	})
	return versions, err
}

// Check implements outbox.Schema. It looks at the table itself, so that it does not matter which tool has made it.
func (s *Store) Check(ctx context.Context) error {
	var missing []string
	err := s.read(ctx, func(rows *sql.Rows) error {
		var what string
		err := rows.Scan(&what)
		missing = append(missing, what)
		return err
	}, s.sql.check, sql.Named("name", s.table[strings.LastIndexByte(s.table, '.')+1:]))
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w (missing: %s)", outbox.ErrSchema, strings.Join(missing, ", "))
	}
	if err != nil {
		return fmt.Errorf("sqlite: check %s: %w", s.table, err)
	}
	return nil
}
