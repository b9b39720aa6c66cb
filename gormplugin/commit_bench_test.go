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

	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
)

// BenchmarkCommitPath compares what a transaction costs with the plugin and without it: make
// bench-commit.
//
// One iteration is a few transactions of each kind, on one connection, each time in another order:
// what the machine does meanwhile hits all alike. The first of the few is not counted, since it
// finds the caches as another kind has left them. Reported is the median over all rounds of a
// kind's time, and of the ratio of two kinds within a round: over a whole run the machine may
// change more than any of the kinds differ.
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
	took := map[string][]float64{} // by kind, one mean for each round
	for b.Loop() {
		for _, i := range rand.Perm(len(c.kinds)) {
			kind := c.kinds[i]
			var start time.Time
			for n := range inARow {
				if n == 1 {
					start = time.Now()
				}
				if err := kind.run(); err != nil {
					b.Fatal(err)
				}
			}
			took[kind.name] = append(took[kind.name], float64(time.Since(start))/float64(time.Microsecond)/(inARow-1))
		}
	}
	for kind, rounds := range took {
		b.ReportMetric(median(rounds), kind+"-µs")
	}
	for _, pair := range [][2]string{{"other-model", "plain"}, {"no-event", "plain"}, {"event", "by-hand"}} {
		ratios := make([]float64, len(took["plain"]))
		for round := range ratios {
			ratios[round] = took[pair[0]][round] / took[pair[1]][round]
		}
		b.ReportMetric(median(ratios), pair[0]+"/"+pair[1])
	}
	b.ReportMetric(0, "ns/op") // of a whole round: says nothing
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func postgresBench(b *testing.B) gorm.Dialector {
	b.Helper()
	return postgres.New(postgres.Config{Conn: openOneConnection(b, "pgx", postgresTable(b))})
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

// openOneConnection makes all handles share one connection, and with it what the server keeps for a
// connection. The business table is there.
func openOneConnection(b *testing.B, driver, dsn string) *sql.DB {
	b.Helper()
	pool, err := sql.Open(driver, dsn)
	require.NoError(b, err)
	pool.SetMaxOpenConns(1)
	b.Cleanup(func() { require.NoError(b, pool.Close()) })
	createBusinessTable(b, pool)
	return pool
}
