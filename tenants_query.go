package fanout

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	sqlmysql "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/config"
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

// queryTenants reads a row for each tenant, by the names of the columns.
func queryTenants(ctx context.Context, db *sql.DB, query string) (map[string]config.Database, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("fanout: tenants.query: %w", err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, fmt.Errorf("fanout: tenants.query: %w", err)
	}
	var (
		name, dsn, dialect sql.NullString
		notify             sql.NullBool
		targets            = make([]any, len(columns))
		there              = map[string]bool{}
	)
	for i, column := range columns {
		column = strings.ToLower(column)
		there[column] = true
		targets[i] = map[string]any{"name": &name, "dsn": &dsn, "driver": &dialect, "notify": &notify}[column]
		if targets[i] == nil {
			return nil, fmt.Errorf("fanout: tenants.query: the column %d has an unknown name: select name, dsn, and perhaps driver and notify", i+1)
		}
	}
	if !there["name"] || !there["dsn"] {
		return nil, errors.New("fanout: tenants.query: it has no columns name and dsn: select name, dsn, and perhaps driver and notify")
	}
	found := map[string]config.Database{}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return nil, fmt.Errorf("fanout: tenants.query: row %d cannot be read: use texts, and a boolean for notify", len(found)+1)
		}
		if _, again := found[name.String]; again || len(found) >= maxQueriedTenants {
			return nil, fmt.Errorf("fanout: tenants.query: row %d: the name is there twice, or there are too many: select each tenant once", len(found)+1)
		}
		found[name.String] = config.Database{Driver: outbox.Dialect(dialect.String), DSN: config.Secret(dsn.String), Notify: notify.Bool}
		if notify.Valid && !dialect.Valid {
			return nil, errors.New("fanout: tenants.query: select driver, too, where it selects notify")
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("fanout: tenants.query: %w", err)
	}
	return found, nil
}
