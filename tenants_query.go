package fanout

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	sqlmysql "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/failure"
	"github.com/gorm-fanout/fanout/outbox"
)

// openTenantQuery opens the database that is asked for the tenants: the application's handle, or one
// connection, which is the caller's to close.
func openTenantQuery(database config.Database, handle *gorm.DB) (db *sql.DB, owned bool, err error) {
	if handle != nil {
		db, err = handle.DB()
		return db, false, err
	}
	dsn := database.DSN.Reveal()
	switch database.Driver {
	case outbox.Postgres:
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, false, errors.New("cannot read the dsn; check its form") // the cause would quote the password
		}
		db = stdlib.OpenDB(*cfg)
	case outbox.MySQL:
		cfg, err := sqlmysql.ParseDSN(dsn)
		if err != nil {
			return nil, false, errors.New("cannot read the dsn; check its form")
		}
		connector, err := sqlmysql.NewConnector(cfg)
		if err != nil {
			return nil, false, errors.New("cannot read the dsn; check its form")
		}
		db = sql.OpenDB(connector)
	default:
		if database.Driver == outbox.SQLite {
			dsn = sqliteDSN(dsn)
		}
		if db, err = sql.Open(string(database.Driver), dsn); err != nil {
			return nil, false, errors.New("cannot read the dsn; check its form")
		}
	}
	db.SetMaxOpenConns(1)
	db.SetConnMaxIdleTime(time.Minute)
	return db, true, nil
}

// maxQueriedTenants ends a query that returns too much: the configuration refuses as many.
const maxQueriedTenants = 10_000

// queryTenants reads a row for each tenant, by the names of the columns. What a row does not say is as the
// section has it.
func queryTenants(ctx context.Context, db *sql.DB, dialect outbox.Dialect, section config.Tenants) (found map[string]config.Database, err error) {
	tx, end, err := beginReadOnly(ctx, db, dialect)
	if err != nil {
		return nil, fmt.Errorf("fanout: tenants.query: %w", err)
	}
	defer func() { err = errors.Join(err, end()) }()
	found, err = readTenants(ctx, tx, section)
	if changesData(err) {
		err = failure.Advise(err, "the query may only read: use a SELECT without a function that writes")
	}
	return found, err
}

// beginReadOnly begins a transaction that can change nothing: end rolls it back. SQL Server has no
// read-only transactions: there the rollback alone undoes what a query did.
func beginReadOnly(ctx context.Context, db *sql.DB, dialect outbox.Dialect) (tx *sql.Tx, end func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	before := 1
	if dialect == outbox.SQLite { // its driver begins the same transaction for readers
		if err := conn.QueryRowContext(ctx, "PRAGMA query_only").Scan(&before); err != nil {
			return nil, nil, errors.Join(err, conn.Close())
		}
	}
	restore := func() error {
		var failed error
		if before == 0 { // the connection may be the application's, which writes with it
			if _, failed = conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA query_only = OFF"); failed != nil {
				_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // it is not used again
			}
		}
		if err := conn.Close(); failed == nil {
			return err
		}
		return failed
	}
	if before == 0 {
		if _, err := conn.ExecContext(ctx, "PRAGMA query_only = ON"); err != nil {
			return nil, nil, errors.Join(err, restore())
		}
	}
	if tx, err = conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: dialect != outbox.SQLServer}); err != nil {
		return nil, nil, errors.Join(err, restore())
	}
	return tx, func() error {
		_ = tx.Rollback() // nothing is to be kept; after the end of ctx it has happened
		return restore()
	}, nil
}

// changesData reports whether a database refused a query since it would have changed something.
func changesData(err error) bool {
	var (
		postgres interface{ SQLState() string }
		mysql    *sqlmysql.MySQLError
		lite     interface{ Code() int }
	)
	switch {
	case errors.As(err, &postgres):
		return postgres.SQLState() == "25006"
	case errors.As(err, &mysql):
		return mysql.Number == 1792
	case errors.As(err, &lite):
		return lite.Code()&0xff == 8 // SQLITE_READONLY
	}
	return false
}

func readTenants(ctx context.Context, tx *sql.Tx, section config.Tenants) (map[string]config.Database, error) {
	rows, err := tx.QueryContext(ctx, section.Query.SQL)
	if err != nil {
		return nil, fmt.Errorf("fanout: tenants.query: %w", err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("fanout: tenants.query: %w", err)
	}
	var row tenantRow
	targets, err := row.targets(columns)
	if err != nil {
		return nil, err
	}
	found := map[string]config.Database{}
	for n := 1; rows.Next(); n++ {
		if err := rows.Scan(targets...); err != nil {
			return nil, fmt.Errorf("fanout: tenants.query: row %d cannot be read: use texts, and a boolean for notify", n)
		}
		name := row.name.String
		if _, again := found[name]; again && name != "" || n > maxQueriedTenants { // rows without a name are refused together
			return nil, fmt.Errorf("fanout: tenants.query: row %d: the name is there twice, or there are too many: select each tenant once", n)
		}
		database := config.Database{Driver: cmp.Or(outbox.Dialect(row.driver.String), section.Driver), DSN: config.Secret(row.dsn.String), Notify: row.notify.Bool}
		if !row.notify.Valid {
			database.Notify = database.Driver == outbox.Postgres && !section.Silent
		}
		found[name] = database
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("fanout: tenants.query: %w", err)
	}
	return found, nil
}

// tenantRow is a row of the query.
type tenantRow struct {
	name, dsn, driver sql.NullString
	notify            sql.NullBool
}

// targets are where the columns are scanned to.
func (r *tenantRow) targets(columns []string) ([]any, error) {
	known := map[string]any{"name": &r.name, "dsn": &r.dsn, "driver": &r.driver, "notify": &r.notify}
	targets := make([]any, len(columns))
	for i, column := range columns {
		column = strings.ToLower(column)
		if targets[i] = known[column]; targets[i] == nil {
			return nil, fmt.Errorf("fanout: tenants.query: column %d has an unknown name, or is there twice: select name, dsn, and perhaps driver and notify", i+1)
		}
		delete(known, column)
	}
	if known["name"] != nil || known["dsn"] != nil {
		return nil, errors.New("fanout: tenants.query: it has no columns name and dsn: select name, dsn, and perhaps driver and notify")
	}
	return targets, nil
}
