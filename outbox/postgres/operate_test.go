package postgres

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// TestFindPlans: an operator's search reads no more than the indexes that its broker and statuses
// call for.
func TestFindPlans(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "searched")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, fill("searched", 40000, "published"))
	exec(t, conn, fill("searched", 4000, "pending"))
	exec(t, conn, "UPDATE searched SET deferred = true WHERE id % 10 = 0 AND status = 'pending'")
	exec(t, conn, "UPDATE searched SET status = 'abandoned', finished_at = created_at WHERE id % 10 = 1 AND status = 'pending'")
	exec(t, conn, "ANALYZE searched")
	exec(t, conn, "SET plan_cache_mode = force_custom_plan")
	for name, c := range map[string]struct {
		args string
		want []string
	}{
		"requeue":     {"broker 'b'; statuses '{pending,failed,abandoned}'; type ''; type_prefix ''; key ''; key_prefix ''; unacknowledged false; message_ids '{}'; aggregate ''; correlation ''; correlated ''; tenant ''; class ''; since NULL; until null; waiting true; limit 100; refused 'malformed'", []string{"searched_abandoned", "searched_deferred_key", "searched_open"}},
		"requeue all": {"broker ''; statuses '{pending,failed,abandoned}'; type ''; type_prefix ''; key ''; key_prefix ''; unacknowledged false; message_ids '{}'; aggregate ''; correlation ''; correlated ''; tenant ''; class ''; since NULL; until null; waiting true; limit 100; refused 'malformed'", []string{"searched_abandoned", "searched_deferred_key", "searched_open"}},
		"abandoned":   {"broker 'b'; statuses '{abandoned}'; type 't'; type_prefix ''; key 'key-1'; key_prefix 'k'; aggregate 'a'; correlation 'c'; correlated 'c'; tenant 't'; unacknowledged true; message_ids '{}'; class 'permanent'; since '2026-01-01'; until '2026-02-01'; waiting true; limit 100; refused 'malformed'", []string{"searched_abandoned"}},
		"failed":      {"broker 'b'; statuses '{failed}'; type ''; type_prefix 't'; key ''; key_prefix ''; unacknowledged false; message_ids '{}'; aggregate ''; correlation ''; correlated ''; tenant ''; class ''; since NULL; until null; waiting true; limit 100; refused 'malformed'", []string{"searched_deferred_key", "searched_open"}},
		"ids": {
			"broker ''; statuses '{published}'; type ''; type_prefix ''; key ''; key_prefix ''; unacknowledged false; message_ids '{e1d3a4e2-1d8c-4f0e-9d3e-0a3b0c1d2e3f}'; aggregate ''; correlation ''; correlated ''; tenant ''; class ''; since NULL; until null; waiting false; limit 100; refused ''", []string{"searched_pkey"},
		},
	} {
		for _, text := range []string{"find", "matches"} {
			plan := explainOnly(t, conn, store.Text(text), literalsOf(t, text, c.args))
			assert.NotContains(t, plan, "Seq Scan", name)
			used := indexes.FindAllString(plan, -1)
			slices.Sort(used)
			assert.Equal(t, c.want, slices.Compact(used), "%s\n%s", name, plan)
		}
	}
	const row = "message_ids '{e1d3a4e2-1d8c-4f0e-9d3e-0a3b0c1d2e3f}'; brokers '{b}'; behind '{true}'; ttl 0; error 'x'"
	for _, text := range []string{"pick", "requeue", "abandon", "acknowledge", "discard"} {
		assert.Contains(t, explainOnly(t, conn, store.Text(text), literalsOf(t, text, row)), "searched_pkey")
	}
}

// indexes finds the names of indexes in a plan.
var indexes = regexp.MustCompile(`searched_(open|deferred_key|deferred|published|abandoned|pkey)`)

func explainOnly(t *testing.T, conn *pgx.Conn, text, args string) string {
	t.Helper()
	exec(t, conn, "PREPARE asked AS "+text)
	defer exec(t, conn, "DEALLOCATE asked")
	rows, err := conn.Query(t.Context(), "EXPLAIN (COSTS OFF) EXECUTE asked("+args+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// TestOperateInChunks: more rows than one transaction may hold.
func TestOperateInChunks(t *testing.T) {
	t.Parallel()
	store := openStore(t, testenv.Postgres(t), "chunks")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	const total = 2*sqladmin.OperateRows + sqladmin.OperateRows/2
	_, err = store.pool.Exec(t.Context(), fill("chunks", total, "published"), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	n, err := store.Replay(t.Context(), admin.Filter{}, sqladmin.OperateRows+1)
	require.NoError(t, err)
	assert.Equal(t, sqladmin.OperateRows+1, n)
	n, err = store.Replay(t.Context(), admin.Filter{}, total)
	require.NoError(t, err)
	assert.Equal(t, total-sqladmin.OperateRows-1, n)
	n, err = store.Abandon(t.Context(), admin.Filter{}, "enough", 10*total)
	require.NoError(t, err)
	assert.Equal(t, total, n)
}

// TestOperatorWaitsForClaims: what an operator does waits for the lock of each shard, and gives up
// in the end.
func TestOperatorWaitsForClaims(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "waits")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = store.pool.Exec(t.Context(), fill("waits", 30, "pending")+"; UPDATE waits SET status = 'failed'", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	for shard := range outbox.Shards {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		exec(t, conn, "BEGIN")
		exec(t, conn, store.sql.lock, shardLock("b", shard))
		hasty, err := New(store.pool, "waits")
		require.NoError(t, err)
		hasty.patience = 0
		hasty.Replace("settings_operate", "'lock_timeout', '10s'", "'lock_timeout', '1ms'")
		for _, broker := range []string{"b", ""} {
			n, err := hasty.Requeue(t.Context(), admin.Filter{Broker: broker}, 100)
			require.ErrorContains(t, err, "lock timeout", "shard %d", shard)
			assert.Zero(t, n)
		}
		_, err = hasty.UnblockKey(t.Context(), "b", "key-1")
		require.ErrorContains(t, err, "lock timeout")
		n, err := hasty.Requeue(t.Context(), admin.Filter{Broker: "a"}, 1)
		require.NoError(t, err)
		assert.Equal(t, 1, n, "other brokers have locks of their own")
		n, err = hasty.Matches(t.Context(), admin.Filter{Broker: "b"}, 100)
		require.NoError(t, err)
		assert.Equal(t, 10, n, "looking takes no lock")
		exec(t, conn, "COMMIT")
		require.NoError(t, conn.Close(t.Context()))
	}
	n, err := store.Requeue(t.Context(), admin.Filter{Broker: "b"}, 100)
	require.NoError(t, err)
	assert.Equal(t, 10, n)
}
