package testenv

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testservers"
)

// recorder is a test that notes how a helper ended it.
type recorder struct {
	testing.TB

	outcome string
}

func (*recorder) Helper() {}

func (*recorder) Attr(string, string) {}

func (r *recorder) Logf(format string, args ...any) { r.outcome += fmt.Sprintf(format, args...) }

func (r *recorder) Skipf(format string, args ...any) {
	r.outcome = "skipped: " + fmt.Sprintf(format, args...)
	panic(r)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.outcome = "failed: " + fmt.Sprintf(format, args...)
	panic(r)
}

// outcome calls helper and tells how it ended the test, or what it logged.
func outcome(helper func(testing.TB)) (said string) {
	r := &recorder{}
	defer func() {
		if recover() != nil {
			said = r.outcome
		}
	}()
	helper(r)
	return r.outcome
}

func TestWithoutServers(t *testing.T) {
	for name, helper := range map[string]func(testing.TB){
		testservers.PostgresVariable:  func(t testing.TB) { Postgres(t) },
		testservers.RedisVariable:     func(t testing.TB) { RedisPrefix(t) },
		testservers.ToxiproxyVariable: func(t testing.TB) { Toxiproxy(t) },
		testservers.SQLServerVariable: func(t testing.TB) { SQLServer(t) },
		testservers.RabbitMQVariable:  func(t testing.TB) { RabbitMQ(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "")
			t.Setenv(requireVariable, "")
			require.Regexp(t, "^skipped: .*"+name, outcome(helper))

			t.Setenv(requireVariable, "1")
			if name == testservers.SQLServerVariable {
				require.Regexp(t, "^skipped: .*"+name, outcome(helper))
			} else {
				require.Regexp(t, "^failed: .*"+name+".*make test", outcome(helper))
			}
		})
	}
}

func TestPostgresRefusesAnythingButAURL(t *testing.T) {
	t.Setenv(testservers.PostgresVariable, "host=localhost password=hush")
	said := outcome(func(t testing.TB) { Postgres(t) })
	require.Regexp(t, "^failed: ", said)
	require.NotContains(t, said, "hush")
}

func TestPostgresGivesEachTestADatabase(t *testing.T) {
	server := need(t, testservers.PostgresVariable)
	databases := map[string]bool{}
	for range 2 {
		t.Run("a test/with ümlauts, and a name that is much longer than PostgreSQL takes", func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), Postgres(t))
			require.NoError(t, err)
			var name, encoding string
			require.NoError(t, conn.QueryRow(t.Context(),
				"SELECT current_database(), pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()").
				Scan(&name, &encoding))
			require.Equal(t, "UTF8", encoding)
			databases[name] = true // and the connection stays open, as in a test that fails half-way
		})
	}
	require.Len(t, databases, 2)

	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	require.NoError(t, err)
	defer conn.Close(ctx)
	for name := range databases {
		var left int
		require.NoError(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&left))
		require.Zero(t, left, name)
	}
}

func TestRedisPrefixDeletesItsKeysOnly(t *testing.T) {
	options, err := redis.ParseURL(Redis(t))
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })

	kept := RedisPrefix(t) + "kept"
	require.NoError(t, client.Set(t.Context(), kept, 1, 0).Err())
	var gone string
	t.Run("inner", func(t *testing.T) {
		gone = RedisPrefix(t) + "gone"
		require.NoError(t, client.Set(t.Context(), gone, 1, 0).Err())
	})
	require.EqualValues(t, 1, client.Exists(t.Context(), kept).Val())
	require.Zero(t, client.Exists(t.Context(), gone).Val())
}

func TestSeed(t *testing.T) {
	t.Setenv(seedVariable, "-42")
	require.EqualValues(t, -42, Seed(t))
	require.Contains(t, outcome(func(t testing.TB) { Seed(t) }), seedVariable+"=-42")

	t.Setenv(seedVariable, "forty-two")
	require.True(t, strings.HasPrefix(outcome(func(t testing.TB) { Seed(t) }), "failed: "))

	t.Setenv(seedVariable, "")
	first, second := Seed(t), Seed(t)
	require.NotEqual(t, first, second)
}

// In make test a case runs on one database, and on the next one where it is not about the first.
func TestOnEach(t *testing.T) {
	all := []string{"a", "b", "c"}
	run := func(t *testing.T, suited ...string) (ran []string) {
		t.Helper()
		t.Run("case", func(t *testing.T) {
			OnEach(t, all, func(s string) string { return s }, func(t *testing.T, on string) {
				if !slices.Contains(suited, on) {
					t.Skip("not on " + on)
				}
				ran = append(ran, on) // one after the other, as there is a turn
			})
		})
		return ran
	}
	t.Setenv(spreadVariable, "1")
	turns := map[string]bool{}
	for seed := range 20 {
		t.Setenv(seedVariable, strconv.Itoa(seed))
		ran := run(t, all...)
		require.Len(t, ran, 1)
		turns[ran[0]] = true
		require.Equal(t, []string{"b"}, run(t, "b"))
		require.Empty(t, run(t))
	}
	require.Len(t, turns, len(all), "each has a turn")

	t.Setenv(spreadVariable, "0")
	var (
		lock sync.Mutex
		ran  []string
	)
	t.Run("case", func(t *testing.T) {
		OnEach(t, all, func(s string) string { return s }, func(_ *testing.T, on string) {
			lock.Lock()
			defer lock.Unlock()
			ran = append(ran, on)
		})
	})
	require.ElementsMatch(t, all, ran)
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	ctx, pass := Deadline(t.Context())
	require.NoError(t, ctx.Err())
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	pass()
	<-child.Done()
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
	pass()
	parent, end := context.WithCancel(t.Context())
	ctx, pass = Deadline(parent)
	end()
	<-ctx.Done()
	pass()
	require.ErrorIs(t, ctx.Err(), context.Canceled, "which was first")
}
