package gormplugin_test

import (
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/internal/testenv"
	pgstore "github.com/gorm-fanout/fanout/outbox/postgres"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
)

// BenchmarkCommitPath compares what a transaction costs with the plugin and without it: make bench-commit.
//
// One iteration is a few transactions of each kind, on one connection, each time in another order: what the machine does
// meanwhile hits all alike. The first of the few is not counted, since it finds the caches as another kind has left them.
// Reported are the medians, and their ratios.
func BenchmarkCommitPath(b *testing.B) {
	b.Run("postgres", func(b *testing.B) { benchCommitPath(b, postgresBench(b)) })
	b.Run("sqlite", func(b *testing.B) { benchCommitPath(b, sqliteBench(b)) })
	b.Run("discard", func(b *testing.B) { benchCommitPath(b, discarding(b)) }) // the time on the way to the database alone
}

func benchCommitPath(b *testing.B, dialector gorm.Dialector) {
	c := newCommitPath(b, dialector, gorm.Config{})

	const (
		warmUp = 100 // statements prepared, caches filled, pages of the tables there
		inARow = 5
	)
	for range warmUp {
		for _, kind := range c.kinds {
			require.NoError(b, kind.run())
		}
	}
	took := make([][]time.Duration, len(c.kinds))
	for b.Loop() {
		for _, kind := range rand.Perm(len(c.kinds)) {
			for n := range inARow {
				start := time.Now()
				if err := c.kinds[kind].run(); err != nil {
					b.Fatal(err)
				}
				if n > 0 {
					took[kind] = append(took[kind], time.Since(start))
				}
			}
		}
	}
	medians := map[string]float64{}
	for i, kind := range c.kinds {
		slices.Sort(took[i])
		medians[kind.name] = float64(took[i][len(took[i])/2]) / float64(time.Microsecond)
		b.ReportMetric(medians[kind.name], kind.name+"-µs")
	}
	b.ReportMetric(medians["other-model"]/medians["plain"], "other-model/plain")
	b.ReportMetric(medians["no-event"]/medians["plain"], "no-event/plain")
	b.ReportMetric(medians["event"]/medians["by-hand"], "event/by-hand")
	b.ReportMetric(0, "ns/op") // of a whole round: says nothing
}

func postgresBench(b *testing.B) gorm.Dialector {
	b.Helper()
	dsn := testenv.Postgres(b)
	store, err := pgstore.Open(b.Context(), pgstore.Config{DSN: dsn, MaxConns: 1})
	require.NoError(b, err)
	_, err = store.Migrate(b.Context())
	require.NoError(b, err)
	require.NoError(b, store.Close())
	pool := openOneConnection(b, "pgx", dsn)
	return postgres.New(postgres.Config{Conn: pool})
}

func sqliteBench(b *testing.B) gorm.Dialector {
	b.Helper()
	path := filepath.Join(b.TempDir(), "bench.db")
	pool := openOneConnection(b, sqlite.DriverName, path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	store, err := sqlitestore.New(pool, "")
	require.NoError(b, err)
	_, err = store.Migrate(b.Context())
	require.NoError(b, err)
	return &sqlite.Dialector{Conn: pool}
}

// openOneConnection makes all handles share one connection, and with it what the server keeps for a connection. The
// business table is there.
func openOneConnection(b *testing.B, driver, dsn string) *sql.DB {
	b.Helper()
	pool, err := sql.Open(driver, dsn)
	require.NoError(b, err)
	pool.SetMaxOpenConns(1)
	b.Cleanup(func() { require.NoError(b, pool.Close()) })
	createBusinessTable(b, pool)
	return pool
}
