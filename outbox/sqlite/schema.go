package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the steps of the schema for a table, for "fanout migrate --print" and for
// other migration tools.
func Migrations(table string) ([]driver.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("sqlite: read migrations: %w", err)
	}
	return driver.Migrations(files, table)
}

// Migrate implements admin.Administration. All missing steps are applied in one transaction; those that
// another tool has applied are recorded.
func (s *Store) Migrate(ctx context.Context) ([]string, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	// Before the lock is taken: what another process migrates meanwhile is then in the record.
	there, err := s.adopt(ctx, steps)
	if err != nil {
		return nil, fmt.Errorf("sqlite: migrate %s: %w", s.table, err)
	}
	var applied []string
	err = s.write(ctx, func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+s.table+`_migrations (
			version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)`); err != nil {
			return err
		}
		done, err := s.versions(ctx, conn)
		if err != nil {
			return err
		}
		applied, err = driver.ApplyMigrations(steps, done, there, func(step driver.Migration) error {
			_, err := conn.ExecContext(ctx, step.SQL)
			return err
		}, func(step driver.Migration) error {
			insert := "INSERT INTO " + s.table + "_migrations (version, name, applied_at) VALUES (?, ?, ?)" //nolint:gosec // a checked name
			_, err := conn.ExecContext(ctx, insert, step.Version, step.Name, s.micros())
			return err
		})
		return err
	})
	switch {
	case err == nil:
		return applied, nil
	case strings.Contains(err.Error(), " already exists"):
		err = driver.NameTaken(err)
	}
	return nil, fmt.Errorf("sqlite: migrate %s: %w", s.table, err)
}

// adopt returns the steps that another tool has applied.
func (s *Store) adopt(ctx context.Context, steps []driver.Migration) ([]int, error) {
	done, _, err := s.recorded(ctx)
	if err != nil {
		return nil, err
	}
	return driver.Adopt(steps, done, func(first []driver.Migration) (driver.Comparison, error) {
		begun, differences, err := s.compare(ctx, len(first))
		return driver.Comparison{Begun: begun, Differences: differences}, err
	})
}

// compare says whether a table of the outbox exists, and how the tables differ from what the first
// steps make.
func (s *Store) compare(ctx context.Context, steps int) (exists bool, differences []string, err error) {
	want, err := s.wanted(steps)
	if err != nil {
		return false, nil, err
	}
	live, err := s.facts(ctx, want.Tables())
	if err != nil {
		return false, nil, err
	}
	return len(live) > 0, schemacheck.Differences(want, live), nil
}

// recorded are the steps that Migrate has recorded; found is false where it has not.
func (s *Store) recorded(ctx context.Context) (versions []int, found bool, err error) {
	err = s.read(ctx, func(rows *sql.Rows) error { return addVersion(rows, &versions) }, s.versionsSQL())
	if errors.Is(err, outbox.ErrSchema) { // no such table: another tool has made the outbox, or it was not made
		return nil, false, nil
	}
	return versions, err == nil, err
}

// versionsSQL lists the steps that Migrate has recorded.
func (s *Store) versionsSQL() string { return "SELECT version FROM " + s.table + "_migrations" }

func (s *Store) versions(ctx context.Context, conn *sql.Conn) ([]int, error) {
	rows, err := conn.QueryContext(ctx, s.versionsSQL())
	if err != nil {
		return nil, err
	}
	var versions []int
	err = each(rows, func(rows *sql.Rows) error { return addVersion(rows, &versions) })
	return versions, err
}

func addVersion(rows *sql.Rows, versions *[]int) error {
	var version int
	err := rows.Scan(&version)
	*versions = append(*versions, version)
	return err
}

// Check implements admin.Administration. It looks at the tables themselves, so that it does not
// matter which tool has made them, and at the steps that Migrate has recorded, where it has.
func (s *Store) Check(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return fmt.Errorf("sqlite: check %s: %w", s.table, err)
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	steps, err := Migrations(s.table)
	if err != nil {
		return err
	}
	exists, differences, err := s.compare(ctx, len(steps))
	if err != nil {
		return err
	}
	found := driver.LiveSchema{Differences: differences, Exists: exists}
	found.Versions, found.Recorded, err = s.recorded(ctx)
	if err != nil {
		return err
	}
	return found.Err(steps)
}
