package sqlserver

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/sqltx"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the steps of the schema for a table, for "fanout migrate --print" and for
// other migration tools. A step is one batch: it holds no GO.
func Migrations(table string) ([]driver.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("sqlserver: read migrations: %w", err)
	}
	return driver.Migrations(files, table)
}

// Migrate implements admin.Administration. All missing steps are applied in one transaction; those that
// another tool has applied are recorded. The table's schema, where one is named, must exist.
func (s *Store) Migrate(ctx context.Context) ([]string, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	var applied []string
	err = retry(ctx, func() (err error) {
		// Before the lock is taken: what another process migrates meanwhile is then in the record.
		there, err := s.adopt(ctx, steps)
		if err != nil {
			return err
		}
		applied, err = s.migrate(ctx, steps, there)
		return err
	})
	switch {
	case err == nil:
		return applied, nil
	case numbered(err, 2760): // no such schema
		err = fmt.Errorf("%w: create the schema first", err)
	case numbered(err, 2714): // there is already an object of that name
		err = driver.NameTaken(err)
	case numbered(err, 262): // no permission to create
		err = fmt.Errorf("%w: migrate as a user who may create tables", err)
	default:
		err = explain(err)
	}
	return nil, fmt.Errorf("sqlserver: migrate %s: %w", s.table, err)
}

// adopt returns the steps that another tool has applied.
func (s *Store) adopt(ctx context.Context, steps []driver.Migration) ([]int, error) {
	done, recorded, err := s.appliedSteps(ctx, s.db)
	if err != nil {
		return nil, err
	}
	if !recorded {
		done = nil
	}
	return driver.Adopt(steps, done, func(first []driver.Migration) (driver.Comparison, error) {
		begun, differences, err := s.compare(ctx, first)
		return driver.Comparison{Begun: begun, Differences: differences}, err
	})
}

func (s *Store) migrate(ctx context.Context, steps []driver.Migration, there []int) (applied []string, err error) {
	err = sqltx.Run(ctx, s.db, nil, func(tx *sql.Tx) error {
		// Options that are set in a batch with parameters end with it; these stay.
		if _, err := tx.ExecContext(ctx, "SET XACT_ABORT ON; SET NOCOUNT ON"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, s.sql.migrate, sql.Named("lock", "fanout:migrate:"+bareName(s.table))); err != nil {
			return err
		}
		done, _, err := s.appliedSteps(ctx, tx)
		if err != nil {
			return err
		}
		applied, err = driver.ApplyMigrations(steps, done, there, func(step driver.Migration) error {
			// Without parameters the text is a batch of its own, which may hold several statements.
			_, err := tx.ExecContext(ctx, step.SQL)
			return err
		}, func(step driver.Migration) error {
			_, err := tx.ExecContext(ctx, s.sql.record, sql.Named("version", step.Version), sql.Named("name", step.Name))
			return err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return applied, nil
}

// appliedSteps are the versions that Migrate has recorded. recorded is false where another tool has
// made the table.
func (s *Store) appliedSteps(ctx context.Context, on querier) (versions []int, recorded bool, err error) {
	recorded = true
	err = queryOn(ctx, on, s.sql.applied, nil, resultSets{"fanout_version": func(rows *sql.Rows) error {
		var version sql.NullInt64
		err := rows.Scan(&version)
		recorded = version.Valid
		versions = append(versions, int(version.Int64))
		return err
	}})
	return versions, recorded && err == nil, err
}

// Check implements admin.Administration. It looks at the tables themselves, so that it does not
// matter which tool has made them, and at the steps that Migrate has recorded, where it has. A user
// without VIEW DEFINITION cannot see defaults, computed expressions, predicates and constraints:
// these are not compared then. It also refuses a read replica, on which nothing could be claimed,
// and a pool of one connection, which could not purge.
func (s *Store) Check(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return fmt.Errorf("sqlserver: check %s: %w", s.table, explain(err))
	}
	return nil
}

func (s *Store) check(ctx context.Context) error {
	if err := s.wide(); err != nil {
		return err
	}
	var updateability sql.NullString
	err := s.query(ctx, s.sql.replica, nil, resultSets{
		"fanout_updateability": func(rows *sql.Rows) error { return rows.Scan(&updateability) },
	})
	var unknown mssql.Error // to a server that has no replicas
	switch {
	case err != nil && !errors.As(err, &unknown):
		return err
	case updateability.String == "READ_ONLY":
		return errReplica
	}
	steps, err := Migrations(s.table)
	if err != nil {
		return err
	}
	exists, differences, err := s.compare(ctx, steps)
	if err != nil {
		return err
	}
	found := driver.LiveSchema{Differences: differences, Exists: exists}
	found.Versions, found.Recorded, err = s.appliedSteps(ctx, s.db)
	if err != nil && !numbered(err, permissionDenied) { // who may not read the record has the tables alone to judge by
		return err
	}
	return found.Err(steps)
}

// compare says whether a table of the outbox exists, and how the tables differ from what the steps make.
func (s *Store) compare(ctx context.Context, steps []driver.Migration) (exists bool, differences []string, err error) {
	want, err := schemacheck.Wanted(schemacheck.SQLServer, steps...)
	if err != nil {
		return false, nil, err
	}
	live, err := s.facts(ctx, s.db, want)
	if err != nil {
		return false, nil, err
	}
	return len(live) > 0, schemacheck.Differences(want, live), nil
}
