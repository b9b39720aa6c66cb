package testenv

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// recorder is a test that panics with how a helper ended it.
type recorder struct{ testing.TB }

func (*recorder) Helper() {}

func (*recorder) Attr(string, string) {}

func (*recorder) Skip(args ...any) { panic("skipped: " + fmt.Sprint(args...)) }

func (*recorder) Fatalf(format string, args ...any) { panic("failed: " + fmt.Sprintf(format, args...)) }

// outcome calls helper and tells how it ended the test.
func outcome(helper func(testing.TB)) (said string) {
	defer func() { said, _ = recover().(string) }()
	helper(&recorder{})
	return ""
}

func TestWithoutServers(t *testing.T) {
	for variable, helper := range map[string]func(testing.TB){
		testservers.PostgresVariable:  func(t testing.TB) { Postgres(t) },
		testservers.MariaDBVariable:   func(t testing.TB) { MySQLAt(t, testservers.MariaDBVariable) },
		testservers.MySQLVariable:     func(t testing.TB) { MySQLAt(t, testservers.MySQLVariable) },
		testservers.RedisVariable:     func(t testing.TB) { RedisPrefix(t) },
		testservers.RabbitMQVariable:  func(t testing.TB) { RabbitMQ(t) },
		testservers.SQLServerVariable: func(t testing.TB) { SQLServer(t) },
		testservers.NATSBinVariable:   func(t testing.TB) { Optional(t, testservers.NATSBinVariable) },
	} {
		t.Setenv(variable, "")
		t.Setenv(requireVariable, "")
		skipped := "skipped: " + testservers.Needs(variable)
		require.Equal(t, skipped, outcome(helper))
		t.Setenv(requireVariable, "1")
		if variable == testservers.SQLServerVariable || variable == testservers.NATSBinVariable {
			require.Equal(t, skipped, outcome(helper))
		} else {
			require.Regexp(t, "^failed: "+variable, outcome(helper))
		}
	}
	t.Setenv(testservers.PostgresVariable, "host=localhost password=hush")
	require.Regexp(t, "^failed: [^h]*://", outcome(func(t testing.TB) { Postgres(t) }))
}

// What a test makes on a server goes with it, even where a connection stays open.
func TestCleanUp(t *testing.T) {
	options, err := redis.ParseURL(Redis(t))
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	kept, gone, database := RedisPrefix(t)+"kept", "", ""
	t.Run("a test/with ümlauts, and a name that is much longer than PostgreSQL takes", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), Postgres(t))
		require.NoError(t, err)
		database, gone = conn.Config().Database, RedisPrefix(t)+"gone"
		require.NoError(t, client.MSet(t.Context(), kept, 1, gone, 1).Err())
	})
	require.EqualValues(t, 1, client.Exists(t.Context(), kept).Val())
	require.Zero(t, client.Exists(t.Context(), gone).Val())
	conn, err := pgx.Connect(t.Context(), Postgres(t))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	err = conn.QueryRow(t.Context(), "SELECT datname FROM pg_database WHERE datname = $1", database).Scan(&database)
	require.ErrorIs(t, err, pgx.ErrNoRows)
}

// A case runs on one database, and on the next one where it is not about the first; with time, on all.
func TestOnEach(t *testing.T) {
	all := []string{"a", "b", "c"}
	run := func(t *testing.T, suited ...string) (ran []string) {
		t.Helper()
		var lock sync.Mutex
		t.Run("case", func(t *testing.T) {
			OnEach(t, all, func(s string) string { return s }, func(t *testing.T, on string) {
				if !slices.Contains(suited, on) {
					t.Skip("not on " + on)
				}
				lock.Lock()
				defer lock.Unlock()
				ran = append(ran, on)
			})
		})
		return ran
	}
	t.Setenv(longVariable, "")
	turns := map[string]bool{}
	for seed := range 20 {
		t.Setenv(seedVariable, strconv.Itoa(seed))
		for _, on := range run(t, all...) {
			turns[on] = true
		}
		require.Equal(t, []string{"b"}, run(t, "b"))
		require.Empty(t, run(t))
	}
	require.Len(t, turns, len(all), "each has a turn")
	t.Setenv(longVariable, "1")
	require.ElementsMatch(t, all, run(t, all...))
}
