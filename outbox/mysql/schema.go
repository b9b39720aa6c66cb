package mysql

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the steps of the schema for a table, for "fanout migrate --print" and for
// other migration tools. A step holds several statements, each of which commits by itself and can
// be repeated.
func Migrations(table string) ([]driver.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("mysql: read migrations: %w", err)
	}
	return driver.Migrations(files, table)
}

// migratePatience is how long a migration waits for another one.
const migratePatience = time.Minute

// Migrate implements admin.Administration. Statements that make tables commit by themselves: a
// migration that was broken off goes on where it is run again. Steps that another tool has applied are
// recorded. The table's database, where one is named, must exist.
func (s *Store) Migrate(ctx context.Context) ([]string, error) {
	applied, err := s.migrate(ctx)
	switch {
	case err == nil:
		return applied, nil
	case numbered(err, 1049): // no such database
		err = fmt.Errorf("%w: create the database first", err)
	case numbered(err, 1050, 1060, 1061): // a table, column or index of that name
		err = driver.NameTaken(err)
	case numbered(err, 1044, 1142): // no permission
		err = fmt.Errorf("%w: migrate as a user who may create tables", err)
	default:
		err = explain(err)
	}
	return nil, fmt.Errorf("mysql: migrate %s: %w", s.table, err)
}

func (s *Store) migrate(ctx context.Context) ([]string, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	// Before a connection is kept: those of other migrations in this process may be all that there are.
	there, err := s.adopt(ctx, steps)
	if err != nil {
		return nil, err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // it goes back into the pool, or is closed already
	release, err := s.named(ctx, conn, "migrate", migratePatience)
	if errors.Is(err, errHeld) {
		return nil, fmt.Errorf("another migration has been running for %s", migratePatience)
	}
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := s.exec(ctx, conn, "migrate", nil); err != nil {
		return nil, err
	}
	done, err := s.versions(ctx, conn)
	if err != nil {
		return nil, err
	}
	return driver.ApplyMigrations(steps, done, there, func(step driver.Migration) error {
		for _, part := range parts(step) {
			if _, err := conn.ExecContext(ctx, part.SQL); err != nil {
				return err
			}
		}
		return nil
	}, func(step driver.Migration) error {
		_, err := s.exec(ctx, conn, "record", args{"version": step.Version, "name": step.Name})
		return err
	})
}

// adopt returns the steps that another tool has applied. A migration that was broken off, of whichever
// tool, has left tables out: the statements that make them pass over those that are there.
func (s *Store) adopt(ctx context.Context, steps []driver.Migration) ([]int, error) {
	done, err := s.versions(ctx, s.db)
	if err != nil && !numbered(err, 1146) {
		return nil, err
	}
	return driver.Adopt(steps, done, func(first []driver.Migration) (driver.Comparison, error) {
		exists, differences, err := s.compare(ctx, len(first))
		broken := len(differences) > 0 && !slices.ContainsFunc(differences, func(d string) bool {
			return !strings.HasPrefix(d, "table ") || !strings.HasSuffix(d, ": missing") && !strings.Contains(d, ": "+rowsProperty+" ")
		})
		return driver.Comparison{Begun: exists && !broken, Differences: differences}, err
	})
}

// versions are the steps that Migrate has recorded.
func (s *Store) versions(ctx context.Context, on conn) ([]int, error) {
	recorded, err := s.list(ctx, on, "applied", nil)
	versions := make([]int, len(recorded))
	for i, version := range recorded {
		versions[i] = int(version)
	}
	return versions, err
}

// parts are the statements of a step: a session takes one at a time, unless its DSN says otherwise.
func parts(step driver.Migration) (parts []driver.Migration) {
	for text := range strings.SplitSeq(sqladmin.Bare(step.SQL), ";\n") {
		if strings.TrimSpace(text) != "" {
			parts = append(parts, driver.Migration{Version: step.Version, Name: step.Name, SQL: text})
		}
	}
	return parts
}

// Check implements admin.Administration. It looks at the tables themselves, so that it does not
// matter which tool has made them, and at the steps that Migrate has recorded, where it has. It
// also refuses a pool of one connection, which could not purge.
func (s *Store) Check(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return fmt.Errorf("mysql: check %s: %w", s.table, explain(err))
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	if err := s.wide(); err != nil {
		return err
	}
	steps, err := Migrations(s.table)
	if err != nil {
		return err
	}
	exists, differences, err := s.compare(ctx, len(steps))
	if err != nil {
		return err
	}
	found := driver.LiveSchema{Differences: differences, Exists: exists}
	found.Versions, err = s.versions(ctx, s.db)
	found.Recorded = err == nil
	if err != nil && !numbered(err, 1146, 1142) { // no record, or one that this user may not read: then the tables alone tell
		return err
	}
	return found.Err(steps)
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
