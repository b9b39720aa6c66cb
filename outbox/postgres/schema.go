package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// errReplica is the answer to a relay that was pointed at a standby.
var errReplica = errors.New("the database is a read replica: point the relay at the primary")

//go:embed migrations/*.sql
var migrationFiles embed.FS

// wantedFacts is what the migrations make, as sql/facts.sql sees it. A test writes the file.
//
//go:embed schema.facts
var wantedFacts string

// Migrations returns the steps of the schema for a table, for "fanout migrate --print" and for
// other migration tools.
func Migrations(table string) ([]driver.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("postgres: read migrations: %w", err)
	}
	return driver.Migrations(files, table)
}

// Migrate implements admin.Administration. All missing steps are applied in one transaction. The
// table's schema, where one is named, must exist.
func (s *Store) Migrate(ctx context.Context) ([]string, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	var applied []string
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted} // whatever the server's default
	err = pgx.BeginTxFunc(ctx, s.pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::int, $2::int)", hash("fanout", "migrate"), hash(s.table)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.table+`_migrations (
			version    integer     NOT NULL PRIMARY KEY,
			name       text        NOT NULL,
			applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`); err != nil {
			return err
		}
		done, err := s.versions(ctx, tx)
		if err != nil {
			return err
		}
		applied, err = driver.ApplyMigrations(steps, done, func(step driver.Migration) error {
			// The simple protocol lets the text hold several statements.
			if _, err := tx.Exec(ctx, step.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO "+s.table+"_migrations (version, name) VALUES ($1, $2)", step.Version, step.Name)
			return err
		})
		return err
	})
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == invalidSchema:
		return nil, fmt.Errorf("postgres: migrate %s: %w: create the schema first", s.table, err)
	case err != nil:
		return nil, fmt.Errorf("postgres: migrate %s: %w", s.table, redact(err))
	}
	return applied, nil
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// versions are the steps that Migrate has recorded.
func (s *Store) versions(ctx context.Context, on querier) ([]int, error) {
	rows, err := on.Query(ctx, "SELECT version FROM "+s.table+"_migrations")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// Check implements admin.Administration. It looks at the tables themselves, so that it does not
// matter which tool has made them, and at the steps that Migrate has recorded, where it has. It
// also refuses a read replica, on which nothing could be claimed.
func (s *Store) Check(ctx context.Context) error {
	err := s.conn(ctx, func(conn *pgx.Conn) error { return s.check(ctx, conn) })
	if err != nil {
		return fmt.Errorf("postgres: check %s: %w", s.table, err)
	}
	return nil
}

func (s *Store) check(ctx context.Context, conn *pgx.Conn) error {
	var replica bool
	if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&replica); err != nil {
		return err
	}
	if replica {
		return errReplica
	}
	steps, err := Migrations(s.table)
	if err != nil {
		return err
	}
	want, err := s.wanted()
	if err != nil {
		return err
	}
	live, err := s.facts(ctx, conn, want.Tables())
	if err != nil {
		return err
	}
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int / 10000").Scan(&version); err != nil {
		return err
	}
	if version != factsVersion {
		live = schemacheck.Forget(want, live, "default", "definition", "generated", "predicate")
	}
	found := driver.LiveSchema{Differences: schemacheck.Differences(want, live), Exists: live.Has(schemacheck.Table + s.table)}
	found.Versions, err = s.versions(ctx, conn)
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		found.Recorded = true
	case errors.As(err, &pgErr) && (pgErr.Code == undefinedTable || pgErr.Code == insufficientPrivilege):
		// Another tool has made the table, or a role of few rights cannot see who did; then the
		// tables alone tell.
	default:
		return err
	}
	return found.Err(steps)
}

// factsVersion is the major version of the server that wrote schema.facts. Another one may write
// the same expression in other words, and a relay must not refuse to start for that: there
// expressions are taken as they are.
const factsVersion = 15

// wanted are the facts of this store's tables.
func (s *Store) wanted() (schemacheck.Facts, error) {
	return schemacheck.Parse(driver.RenderSQL(wantedFacts, s.table))
}

// facts reads what the named tables are made of.
func (s *Store) facts(ctx context.Context, conn *pgx.Conn, tables []string) (schemacheck.Facts, error) {
	rows, err := conn.Query(ctx, s.sql.facts, tables)
	if err != nil {
		return nil, err
	}
	var (
		live                    schemacheck.Facts
		object, property, value string
	)
	_, err = pgx.ForEachRow(rows, []any{&object, &property, &value}, func() error {
		live = live.With(object, property, value)
		return nil
	})
	return live, err
}
