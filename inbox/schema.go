package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/dbtable"
	"github.com/gorm-fanout/fanout/internal/schemacheck"
	"github.com/gorm-fanout/fanout/internal/sqltx"
)

//go:embed migrations
var migrationFiles embed.FS

// A Migration is one step of the table's schema: its Version counts from 1, its Name is e.g.
// "inbox", and its SQL may hold several statements. Its String is e.g. "0001_inbox". Steps are
// recorded in "<table>_migrations".
type Migration = dbtable.Migration

// Migrations returns the steps of the schema for a table, to be printed or given to another
// migration tool. The dialect is "postgres", "sqlserver", "mysql" or "sqlite". On SQL Server a
// step is one batch: it holds no GO. On MySQL it is one statement.
func Migrations(dialect, table string) ([]Migration, error) {
	if err := checkTable(dialect, table); err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrationFiles, "migrations/"+dialect)
	if err != nil {
		return nil, fmt.Errorf("inbox: read migrations: %w", err)
	}
	steps, err := dbtable.Migrations(files, table)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	return steps, nil
}

var errNoTable = errors.New(`the inbox schema is not up to date: run inbox.Migrate or "fanout inbox migrate", or name the table that there is (inbox.WithTable, --table)`)

// explain says what to do about a table that is missing.
func explain(err error) error { return dbtable.Explain(err, errNoTable) }

// Migrate makes the inbox table, or brings it up to date, and returns the names of the steps that
// it has applied, none if there was nothing to do. A table that another migration tool has made from
// [Migrations] is recorded, and its steps are returned as "0001_inbox is already there, recorded"; the
// error names how a table differs that is neither.
//
// Of several processes that call it at the same time one does it, and the others wait. All steps are
// applied in one transaction, on a connection of its own even where db is in a transaction. On MySQL,
// where making a table ends a transaction, each commits by itself: what was broken off goes on where
// Migrate is called again. The table's schema, where one is named, must exist. Of the options it uses
// [WithTable].
func Migrate(ctx context.Context, db *gorm.DB, opts ...Option) ([]string, error) {
	s, statements, err := prepare(db, opts)
	if err != nil {
		return nil, err
	}
	steps, err := Migrations(statements.dialect, s.table)
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("inbox: migrate %s: find the pool of the GORM handle: %w", s.table, err)
	}
	var applied []string
	err = migrating(ctx, pool, statements, func(on conn) (err error) {
		applied, err = migrate(ctx, on, statements, steps)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: migrate %s: %w", s.table, err)
	}
	return applied, nil
}

// migrating runs f in a transaction on a connection of its own. On SQLite it begins as a writer:
// one that turns into a writer later would fail where another process has written meanwhile.
func migrating(ctx context.Context, pool *sql.DB, statements *statements, f func(conn) error) (err error) {
	connection, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, connection.Close()) }()
	if statements.dialect == sqlite {
		if _, err := connection.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
			return err
		}
		if err := f(connection); err != nil {
			_, back := connection.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			return errors.Join(err, back)
		}
		_, err := connection.ExecContext(ctx, "COMMIT")
		return err
	}
	if statements.dialect == mySQL {
		return lockedByName(ctx, connection, statements, f)
	}
	options := &sql.TxOptions{Isolation: sql.LevelReadCommitted} // whatever the server's default
	return sqltx.Run(ctx, connection, options, func(tx *sql.Tx) error { return f(tx) })
}

// lockName is what a migration locks.
func (s *statements) lockName() string { return "fanout:migrate:" + s.table }

// lockedByName runs f while the session has the lock of the migration, outside any transaction.
func lockedByName(ctx context.Context, on *sql.Conn, statements *statements, f func(conn) error) error {
	var granted, released sql.NullBool // NULL: the server failed to
	_, err := queryOne(ctx, on, statements.lock, []any{statements.lockName()}, &granted)
	if err == nil && !granted.Bool {
		return errors.New("another process has been migrating the table for a minute")
	}
	if err == nil {
		err = f(on)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if _, problem := queryOne(ctx, on, statements.release, []any{statements.lockName()}, &released); problem != nil || !released.Bool {
		_ = on.Raw(func(any) error { return driver.ErrBadConn }) // the connection is closed, and the lock goes with it
	}
	return err
}

func migrate(ctx context.Context, on conn, statements *statements, steps []Migration) ([]string, error) {
	if statements.lock.text != "" && statements.dialect != mySQL { // there the session has it
		if _, err := exec(ctx, on, statements.lock, statements.lockName()); err != nil {
			return nil, err
		}
	}
	if _, err := on.ExecContext(ctx, statements.migrate.text); err != nil {
		return nil, err
	}
	done, err := queryAll(ctx, on, statements.versions, nil, func(rows *sql.Rows) (version int, err error) {
		err = rows.Scan(&version)
		return version, err
	})
	if err != nil {
		return nil, err
	}
	dialect := schemacheck.Dialect(statements.dialect)
	there, strange, err := dbtable.There(steps, done, func(first []Migration) (dbtable.Comparison, error) {
		return schemacheck.Outline(ctx, on, dialect, statements.table, first...)
	})
	if err != nil {
		return nil, err
	}
	if len(strange) > 0 {
		return nil, fmt.Errorf("a table is there that is not what the steps make (%s), and nothing of it was changed: if another tool made it, "+
			"bring it to what inbox.Migrations and \"fanout inbox migrate --print\" show, and migrate again, which records it; "+
			"if it is not the inbox's, rename it, or choose another name (inbox.WithTable, --table)", strings.Join(strange, "; "))
	}
	return dbtable.Apply(steps, done, there, func(step Migration) error {
		// Without parameters the text may hold several statements.
		_, err := on.ExecContext(ctx, step.SQL)
		return err
	}, func(step Migration) error {
		_, err := exec(ctx, on, statements.record, step.Version, step.Name)
		return err
	})
}

// queryAll reads an answer.
func queryAll[T any](ctx context.Context, on conn, s statement, args []any, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	rows, err := on.QueryContext(ctx, s.text, s.args(args)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
