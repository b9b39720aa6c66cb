package sqlserver

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/store/storetest"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, testenv.SQLServer(t), "")
}

// TestConformanceOfSessions: a store gets its connections from the application, with whatever it
// has set on them.
func TestConformanceOfSessions(t *testing.T) {
	t.Parallel()
	conform(t, with(t, testenv.SQLServer(t), "guid conversion", "true"), "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET XACT_ABORT OFF")
}

// Databases are set up in many ways, which a store must not notice: reads of row versions or behind
// locks, names that differ by case and by the rules of another language, literals that become
// parameters.
func TestConformanceOfDatabases(t *testing.T) {
	t.Parallel()
	server := testenv.SQLServer(t)
	for name, c := range map[string]struct {
		collation string
		options   []string
	}{
		"versions": {"Turkish_100_CS_AS", []string{
			"READ_COMMITTED_SNAPSHOT ON", "ALLOW_SNAPSHOT_ISOLATION ON", "DELAYED_DURABILITY = ALLOWED", "PARAMETERIZATION FORCED",
		}},
		"locks": {"Latin1_General_100_CI_AS", []string{"READ_COMMITTED_SNAPSHOT OFF", "COMPATIBILITY_LEVEL = 130"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, newDatabase(t, server, c.collation, c.options...), "")
		})
	}
}

// newDatabase makes a database for this test, and returns its DSN. Where the user may not, the test
// is skipped.
func newDatabase(t *testing.T, server, collation string, options ...string) (dsn string) {
	t.Helper()
	name := "fanout_test_" + strings.ToLower(rand.Text()[:8])
	admin := openDB(t, server, "")
	_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name+" COLLATE "+collation)
	if numbered(err, 262, 1807) { // no permission, or the model is locked
		t.Skipf("NOT TESTED in a database with the collation %s: %v", collation, err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		execute(t, admin, "ALTER DATABASE "+name+" SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE "+name)
	})
	for _, option := range options {
		execute(t, admin, "ALTER DATABASE "+name+" SET "+option)
	}
	return with(t, server, "database", name)
}

// conform runs the suite, each test on tables of its own that are dropped after it. Stores have
// sessions of their own kind.
func conform(t *testing.T, dsn, session string) {
	t.Helper()
	prefix := "fanout_test_" + strings.ToLower(rand.Text()[:8])
	db := openDB(t, dsn, "")
	logServer(t, db)
	schema := prefix
	if _, err := db.ExecContext(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Logf("NOT TESTED with a schema of its own: %v", err)
		schema = "dbo"
	} else {
		t.Cleanup(func() { execute(t, db, "DROP SCHEMA "+schema) })
	}
	var tables atomic.Int32
	storetest.Run(t, func(t *testing.T) storetest.Bundle {
		n := tables.Add(1)
		table := fmt.Sprintf("%s_%d", prefix, n)
		further := []string{
			fmt.Sprintf("%s.%s_s%d", schema, prefix, n), fmt.Sprintf("dbo.Mixed_Case_%s_%d", prefix, n), fmt.Sprintf("_%s_%d_", prefix, n),
			fmt.Sprintf("%s_%s_%d", strings.Repeat("x", 48-2-len(prefix)-len(fmt.Sprint(n))), prefix, n),
		}
		dropAfter(t, db, append([]string{table}, further...)...)
		open := func(t *testing.T, table string) driver.Store {
			t.Helper()
			return newStore(t, openDB(t, dsn, session), table)
		}
		return storetest.Bundle{
			Store: open(t, table), DB: db, Table: table, Open: open, Tables: further,
			Decided: func(s driver.Store) claims.Store { return thin{s.(*Store)} },
			HoldShard: func(t *testing.T, broker string, shard int) func() {
				t.Helper()
				return holdShard(t, db, table, broker, shard)
			},
		}
	})
}

// logServer writes down what was tested.
func logServer(t *testing.T, db *sql.DB) {
	t.Helper()
	var version string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@VERSION").Scan(&version))
	version, _, _ = strings.Cut(version, "\n")
	var snapshot sql.NullBool
	err := db.QueryRowContext(t.Context(), "SELECT is_read_committed_snapshot_on FROM sys.databases WHERE database_id = DB_ID()").Scan(&snapshot)
	t.Logf("%s; READ_COMMITTED_SNAPSHOT: %v, %v", version, snapshot, err)
}

func with(t *testing.T, dsn, parameter, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	query := u.Query()
	query.Set(parameter, value)
	u.RawQuery = query.Encode()
	return u.String()
}

func openDB(t *testing.T, dsn, session string) *sql.DB {
	t.Helper()
	connector, err := mssql.NewConnector(dsn)
	require.NoError(t, err)
	connector.SessionInitSQL = session
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(10)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func newStore(t *testing.T, db *sql.DB, table string) *Store {
	t.Helper()
	store, err := New(db, table)
	require.NoError(t, err)
	return store
}

func execute(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	_, err := db.ExecContext(context.WithoutCancel(t.Context()), text)
	require.NoError(t, err, text)
}

// dropAfter drops tables when the test ends, those that it has made.
func dropAfter(t *testing.T, db *sql.DB, tables ...string) {
	t.Helper()
	t.Cleanup(func() {
		for _, table := range tables {
			for _, name := range []string{table, table + "_migrations", table + "_key_blocks", table + "_shards", table + "_pauses", table + "_instances", table + "_audit"} {
				execute(t, db, fmt.Sprintf("IF OBJECT_ID(N'%s') IS NOT NULL DROP TABLE %s", name, name))
			}
		}
	})
}

// holdShard takes the lock of a shard as a claim does, until release.
func holdShard(t *testing.T, db *sql.DB, table, broker string, shard int) (release func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), batchText(table, "part_lock"), shardArgs(broker, shard)...)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback()) }
}
