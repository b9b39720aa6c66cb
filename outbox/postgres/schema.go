package postgres

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/store/contention"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// errReplica is the answer to a relay that was pointed at a standby.
var errReplica = errors.New("the database is a read replica: point the relay at the primary")

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the steps that make the tables, for "fanout migrate --print" and other migration
// tools.
func Migrations(table string) ([]driver.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("postgres: read migrations: %w", err)
	}
	return driver.Migrations(files, table)
}

// Migrate implements admin.Administration. It applies all missing steps in one transaction, and records
// those that another tool has applied. It does not create the schema that a table's name has in front.
func (s *Store) Migrate(ctx context.Context) ([]string, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	var there []int
	// This comes before the lock: the record then has the steps that another process applies meanwhile.
	err = s.conn(ctx, func(conn *pgx.Conn) (err error) {
		there, err = s.adopt(ctx, conn, steps)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: migrate %s: %w", s.table, redact(err))
	}
	var applied []string
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted} // whatever the server's default
	try := func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::int, $2::int)", hash("fanout", "migrate"), hash(s.table)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.table+`_migrations (
			version    integer     NOT NULL PRIMARY KEY,
			name       text        NOT NULL,
			applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`); err != nil {
			return err
		}
		done, err := s.versions(ctx, tx.Conn())
		if err != nil {
			return err
		}
		applied, err = driver.ApplyMigrations(steps, done, there, func(step driver.Migration) error {
			// The simple protocol lets the text hold several statements.
			_, err := tx.Exec(ctx, step.SQL, pgx.QueryExecModeSimpleProtocol)
			return err
		}, func(step driver.Migration) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+s.table+"_migrations (version, name) VALUES ($1, $2)", step.Version, step.Name)
			return err
		})
		return err
	}
	// A step that waits for a lock makes others wait behind it, so it gives up after a while.
	err = contention.Retry(ctx, s.patience, brokenOff, func() error { return pgx.BeginTxFunc(ctx, s.pool, options, try) })
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == invalidSchema:
		return nil, fmt.Errorf("postgres: migrate %s: %w: create the schema first", s.table, err)
	case errors.As(err, &pgErr) && slices.Contains(duplicates, pgErr.Code):
		return nil, fmt.Errorf("postgres: migrate %s: %w", s.table, driver.NameTaken(err))
	case errors.As(err, &pgErr) && pgErr.Code == lockNotAvailable:
		return nil, fmt.Errorf("postgres: migrate %s: %w", s.table, explain(err))
	case err != nil:
		return nil, fmt.Errorf("postgres: migrate %s: %w", s.table, redact(err))
	}
	return applied, nil
}

// duplicates are the errors of a CREATE whose name is taken: by a table, a type or an object.
var duplicates = []string{"42P07", "42710", "23505"}

// adopt returns the steps that another tool has applied.
func (s *Store) adopt(ctx context.Context, conn *pgx.Conn, steps []driver.Migration) ([]int, error) {
	done, err := s.versions(ctx, conn)
	var pgErr *pgconn.PgError
	if err != nil && (!errors.As(err, &pgErr) || pgErr.Code != undefinedTable) {
		return nil, err
	}
	return driver.Adopt(steps, done, func(first []driver.Migration) (driver.Comparison, error) {
		return s.compare(ctx, conn, first)
	})
}

// compare compares the tables with those that the steps make.
func (s *Store) compare(ctx context.Context, conn *pgx.Conn, steps []driver.Migration) (found driver.Comparison, err error) {
	want, err := schemacheck.Wanted(schemacheck.Postgres, steps...)
	if err != nil {
		return found, err
	}
	live, err := s.facts(ctx, conn, want.Tables())
	if err != nil {
		return found, err
	}
	found.Begun = len(live) > 0
	found.Differences = schemacheck.Differences(want, live)
	return found, nil
}

// versions returns the steps that Migrate has recorded.
func (s *Store) versions(ctx context.Context, conn *pgx.Conn) ([]int, error) {
	rows, err := conn.Query(ctx, "SELECT version FROM "+s.table+"_migrations")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// Check implements admin.Administration. It reads the tables themselves, since any tool may have made
// them, and the steps that Migrate has recorded, if any. It refuses a read replica, where nothing can
// be claimed.
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
	compared, err := s.compare(ctx, conn, steps)
	if err != nil {
		return err
	}
	found := driver.LiveSchema{Differences: compared.Differences, Exists: compared.Begun}
	found.Versions, err = s.versions(ctx, conn)
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		found.Recorded = true
	case errors.As(err, &pgErr) && (pgErr.Code == undefinedTable || pgErr.Code == insufficientPrivilege):
		// Another tool made the tables, or this role may not read the record: the tables alone tell.
	default:
		return err
	}
	return found.Err(steps)
}

// wanted returns the facts that this store's tables should have.
func (s *Store) wanted() (schemacheck.Facts, error) {
	steps, err := Migrations(s.table)
	if err != nil {
		return nil, err
	}
	return schemacheck.Wanted(schemacheck.Postgres, steps...)
}

// facts reads what the named tables are made of.
func (s *Store) facts(ctx context.Context, conn *pgx.Conn, tables []string) (live schemacheck.Facts, err error) {
	oids, err := oidsOf(ctx, conn, tables)
	if err != nil || !slices.ContainsFunc(oids, func(oid *uint32) bool { return oid != nil }) {
		return nil, err
	}
	err = catalogOnly(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		live, err = s.catalog(ctx, tx, tables, oids)
		return err
	})
	return live, err
}

// oidsOf finds tables by the connection's search path.
func oidsOf(ctx context.Context, conn *pgx.Conn, tables []string) (oids []*uint32, err error) {
	err = conn.QueryRow(ctx, "SELECT array(SELECT to_regclass(name)::oid FROM unnest($1::text[]) WITH ORDINALITY AS listed (name, n) ORDER BY n)", tables).Scan(&oids)
	return oids, err
}

func (s *Store) catalog(ctx context.Context, tx pgx.Tx, tables []string, oids []*uint32) (facts schemacheck.Facts, err error) {
	rows, err := tx.Query(ctx, s.sql.facts, tables, oids)
	if err != nil {
		return nil, err
	}
	var object, property, value string
	_, err = pgx.ForEachRow(rows, []any{&object, &property, &value}, func() error {
		facts = facts.With(object, property, value)
		return nil
	})
	return facts, err
}

// CompareWithScratch implements driver.Store. The scratch tables are temporary ones, in a transaction
// that is rolled back.
func (s *Store) CompareWithScratch(ctx context.Context) (differences []string, err error) {
	err = s.conn(ctx, func(conn *pgx.Conn) error {
		differences, err = s.compareWithScratch(ctx, conn)
		return err
	})
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == insufficientPrivilege {
		err = fmt.Errorf("%w: the role needs TEMPORARY on the database", err)
	}
	return differences, err
}

func (s *Store) compareWithScratch(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	want, err := s.wanted()
	if err != nil {
		return nil, err
	}
	tables := want.Tables()
	live, err := s.facts(ctx, conn, tables)
	if err != nil {
		return nil, err
	}
	scratch := "pg_temp." + dbtable.Bare(s.table)
	steps, err := Migrations(scratch)
	if err != nil {
		return nil, err
	}
	err = catalogOnly(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
		for _, step := range steps {
			if _, err := tx.Exec(ctx, step.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		names := make([]string, len(tables))
		for i, table := range tables {
			names[i] = scratch + strings.TrimPrefix(table, s.table)
		}
		oids, err := oidsOf(ctx, tx.Conn(), names)
		if err != nil {
			return err
		}
		want, err = s.catalog(ctx, tx, tables, oids)
		return err
	})
	if err != nil {
		return nil, err
	}
	return schemacheck.TextDifferences(want.Renamed("temporary table", "table"), live), nil
}

// catalogOnly runs f in a transaction that is rolled back. Where no schema is named, it finds nothing but
// PostgreSQL's own functions and operators.
func catalogOnly(ctx context.Context, conn *pgx.Conn, mode pgx.TxAccessMode, f func(pgx.Tx) error) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: mode})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `SELECT set_config('search_path', 'pg_catalog, pg_temp', true), set_config('statement_timeout', '5s', true),
		set_config('quote_all_identifiers', 'off', true)`)
	if err == nil {
		err = f(tx)
	}
	return cmp.Or(err, tx.Rollback(ctx))
}
