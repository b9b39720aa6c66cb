package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/glebarez/sqlite" // driver "sqlite"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/store/storetest"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, parameters := range map[string]string{
		"WAL": "_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=synchronous(OFF)",
		// Without a busy timeout the store waits by itself; in a rollback journal readers and
		// writers meet; and one connection must be enough for every verb.
		"Journal": "_pragma=journal_mode(DELETE)&_pragma=busy_timeout(0)&_pragma=synchronous(OFF)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite := storetest.Run
			if name == "Journal" {
				suite = storetest.RunOnceMore
			}
			suite(t, func(t *testing.T) storetest.Bundle {
				path := filepath.Join(t.TempDir(), "outbox.db") + "?" + parameters
				open := func(t *testing.T, table string) driver.Store {
					db := openDB(t, path) // a process has a pool of its own
					if name == "Journal" {
						db.SetMaxOpenConns(1)
					}
					store, err := New(db, table)
					require.NoError(t, err)
					store.patience = time.Minute // a machine may be slow, and the queue for the lock is not a fair one
					return store
				}
				return storetest.Bundle{
					Store: open(t, ""), DB: openDB(t, path+"&_pragma=busy_timeout(20000)"), Table: outbox.DefaultTable, Open: open,
					Tables:    []string{"main.in_schema", "Mixed_Case", "_1_", "x2345678901234567890123456789012345678901234567z"},
					OneWriter: true,
				}
			})
		})
	}
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
