package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gorm-fanout/fanout/outbox"
)

// errReplica is the answer to a relay that was pointed at a standby.
var errReplica = errors.New("the database is a read replica: point the relay at the primary")

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the steps of the schema for a table, for "fanout migrate --print" and for other migration tools.
func Migrations(table string) ([]outbox.Migration, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, fmt.Errorf("postgres: read migrations: %w", err)
	}
	return outbox.Migrations(files, table)
}

// Migrate implements outbox.Schema. All missing steps are applied in one transaction. The table's schema, where one is
// named, must exist.
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
		rows, err := tx.Query(ctx, "SELECT version FROM "+s.table+"_migrations")
		if err != nil {
			return err
		}
		done, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			return err
		}
		for _, step := range steps {
			if slices.Contains(done, step.Version) {
				continue
			}
			// The simple protocol lets the text hold several statements.
			if _, err := tx.Exec(ctx, step.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("step %s: %w", stepName(step), err)
			}
			if _, err := tx.Exec(ctx, "INSERT INTO "+s.table+"_migrations (version, name) VALUES ($1, $2)", step.Version, step.Name); err != nil {
				return err
			}
			applied = append(applied, stepName(step))
		}
		return nil
	})
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == "3F000":
		return nil, fmt.Errorf("postgres: migrate %s: %w: create the schema first", s.table, err)
	case err != nil:
		return nil, fmt.Errorf("postgres: migrate %s: %w", s.table, redact(err))
	}
	return applied, nil
}

func stepName(step outbox.Migration) string { return fmt.Sprintf("%04d_%s", step.Version, step.Name) }

// Check implements outbox.Schema. It looks at the table itself, so that it does not matter which tool has made it. It also
// refuses a read replica, on which nothing could be claimed.
func (s *Store) Check(ctx context.Context) error {
	var missing []string
	err := s.conn(ctx, func(conn *pgx.Conn) error {
		var replica bool
		if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&replica); err != nil {
			return err
		}
		if replica {
			return errReplica
		}
		rows, err := conn.Query(ctx, s.sql.check, s.table)
		if err != nil {
			return err
		}
		missing, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w (missing: %s)", outbox.ErrSchema, strings.Join(missing, ", "))
	}
	if err != nil {
		return fmt.Errorf("postgres: check %s: %w", s.table, err)
	}
	return nil
}
