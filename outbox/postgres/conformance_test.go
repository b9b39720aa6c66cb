package postgres

import (
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql, to look at tables from outside
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/store/storetest"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	conform(t, storetest.Run, dsn, dsn)
}

// conform runs the suite in one database, each test on a table of its own. The stores connect by a
// DSN of their own.
func conform(t *testing.T, suite func(*testing.T, func(*testing.T) storetest.Bundle), dsn, storeDSN string) {
	t.Helper()
	db := openDB(t, dsn)
	_, err := db.ExecContext(t.Context(), "CREATE SCHEMA app")
	require.NoError(t, err)
	var tables atomic.Int32
	suite(t, func(t *testing.T) storetest.Bundle {
		n := tables.Add(1)
		table := fmt.Sprintf("outbox_%d", n)
		open := func(t *testing.T, table string) driver.Store { return openStore(t, storeDSN, table) }
		return storetest.Bundle{
			Store: open(t, table), DB: db, Table: table, Open: open, Decided: func(s driver.Store) claims.Store { return thin{s.(*Store)} },
			Tables: []string{
				fmt.Sprintf("app.outbox_%d", n), fmt.Sprintf("public.Mixed_Case_%d", n), fmt.Sprintf("_%d_", n),
				fmt.Sprintf("%s_%d", strings.Repeat("x", 48-1-len(fmt.Sprint(n))), n),
			},
			OpenUnhurried: func(t *testing.T, table string) driver.Store {
				t.Helper()
				return openStore(t, with(t, storeDSN, "deadlock_timeout", "10s"), table)
			},
			HoldShard: func(t *testing.T, broker string, shard int) func() {
				t.Helper()
				conn, err := pgx.Connect(t.Context(), dsn)
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), "BEGIN")
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), readSQL("lock", table), shardLock(broker, shard))
				require.NoError(t, err)
				return func() {
					_, err := conn.Exec(t.Context(), "COMMIT")
					require.NoError(t, err)
					require.NoError(t, conn.Close(t.Context()))
				}
			},
		}
	})
}

func openStore(t *testing.T, dsn, table string) *Store {
	t.Helper()
	store, err := Open(t.Context(), dsn, table)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(10)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
