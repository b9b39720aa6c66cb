package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// planned are the statements that run while messages flow, with arguments as an EXPLAIN takes them, and the index that
// each of them must use.
var planned = []plannedSQL{
	{"claim", "claim_ordered", "'b', 1, 500, 500, 'w', gen_random_uuid(), 60000000", "_open"},
	{"claim, wide window", "claim_ordered", "'b', 1, 8000, 500, 'w', gen_random_uuid(), 60000000", "_open"},
	{"claim without order", "claim_unordered", "'b', 1, 500, 500, 'w', gen_random_uuid(), 60000000", "_open"},
	{"fetch", "fetch", "'b', 1, gen_random_uuid()", "_open"},
	{"mark published", "mark_published", "'b', 1, gen_random_uuid(), 40000, 44000, %ids, %texts", "_open"},
	{"mark other", "mark_other", "'b', 1, gen_random_uuid(), 40000, 44000, %ids, %texts, %ints, %ids, %texts, true", "_open"},
	{"renew", "renew", "'b', 1, gen_random_uuid(), 40000, 44000, 60000000", "_open"},
	{"ready", "ready", "'b'", "_open"},
	{"finished brokers", "finished_brokers", "", "_published"},
	{"finished brokers, abandoned", "finished_brokers", "", "_abandoned"},
	{"purge published", "purge published", "'b', 60000000, 5000", "_published"},
	{"purge abandoned", "purge abandoned", "'b', 60000000, 5000", "_abandoned"},
}

type plannedSQL struct{ name, text, args, index string }

func (p plannedSQL) render(table string) string {
	if status, ok := strings.CutPrefix(p.text, "purge "); ok {
		return purgeSQL(table, outbox.Status(status))
	}
	return readSQL(p.text, table)
}

// TestPlans keeps the planner on its two indexes: with plans made for the arguments and with generic ones, with fresh
// statistics and with those of a time when nothing was open.
func TestPlans(t *testing.T) {
	t.Parallel()
	for name, stale := range map[string]bool{"fresh statistics": false, "stale statistics": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPlans(t, stale)
		})
	}
}

func testPlans(t *testing.T, stale bool) {
	t.Helper()
	dsn := testenv.Postgres(t)
	const table = "plans"
	_, err := openStore(t, dsn, table).Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, "ALTER TABLE plans SET (autovacuum_enabled = false)")
	exec(t, conn, fill(table, 40000, "published"))
	exec(t, conn, "ANALYZE plans")
	exec(t, conn, fill(table, 10000, "pending"))
	if !stale {
		exec(t, conn, "ANALYZE plans")
	}
	exec(t, conn, "SELECT set_config('fanout.lane', 'held', false), set_config('fanout.first', '40000', false), set_config('fanout.last', '44000', false)")
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		exec(t, conn, "SET plan_cache_mode = "+mode)
		for _, p := range planned {
			plan := explainPlan(t, conn, p.render(table), p.args)
			assert.Contains(t, plan, table+p.index, "%s, %s", p.name, mode)
			assert.NotContains(t, plan, "Seq Scan on "+table, "%s, %s", p.name, mode)
			assert.NotContains(t, plan, "_pkey", "%s, %s", p.name, mode)
			if p.text == "claim_ordered" || strings.HasPrefix(p.text, "mark") {
				assert.NotContains(t, plan, "Nested Loop", "%s, %s: quadratic where statistics are stale", p.name, mode)
			}
		}
	}
}

// fill writes rows of three brokers.
func fill(table string, n int, status string) string {
	return fmt.Sprintf(`INSERT INTO %[3]s (message_id, target_broker, stream, type, ordering_key, payload, status, published_at, finished_at)
		SELECT gen_random_uuid(), (ARRAY['a', 'b', 'c'])[i %% 3 + 1], 's', 't', 'key-' || i %% 1000, convert_to(repeat('x', 200), 'UTF8'),
		       '%[2]s', f, f
		  FROM generate_series(1, %[1]d) AS i,
		       LATERAL (SELECT CASE WHEN '%[2]s' = 'published' THEN now() - i * interval '1 second' END AS f) AS finished`, n, status, table)
}

func explainPlan(t *testing.T, conn *pgx.Conn, text, args string) string {
	t.Helper()
	exec(t, conn, "PREPARE planned AS "+text)
	defer exec(t, conn, "DEALLOCATE planned")
	list := func(value string) string {
		return "ARRAY[" + strings.TrimSuffix(strings.Repeat(value+", ", 500), ", ") + "]"
	}
	args = strings.NewReplacer("%ids", list("41000"), "%texts", list("'x'"), "%ints", list("1")).Replace(args)
	if args != "" {
		args = "(" + args + ")"
	}
	exec(t, conn, "BEGIN")
	defer exec(t, conn, "ROLLBACK")
	exec(t, conn, readSQL("settings", ""))
	rows, err := conn.Query(t.Context(), "EXPLAIN (COSTS OFF) EXECUTE planned"+args, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

func exec(t *testing.T, conn *pgx.Conn, text string, args ...any) {
	t.Helper()
	if len(args) == 0 {
		args = []any{pgx.QueryExecModeSimpleProtocol}
	}
	_, err := conn.Exec(t.Context(), text, args...)
	require.NoError(t, err, text)
}

// TestClaimIsHOT: a claim touches no index.
func TestClaimIsHOT(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, "hot").Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, fill("hot", 3000, "pending"))
	for n, text := range []string{"claim_ordered", "claim_unordered"} {
		exec(t, conn, "BEGIN")
		exec(t, conn, readSQL("try_lock", "hot"), laneLock("a", 0))
		exec(t, conn, readSQL(text, "hot"), "a", 0, 100, 100, "w", pgUUID([16]byte{1}), int64(60e6))
		var updated, hot int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_stat_get_xact_tuples_updated('hot'::regclass), pg_stat_get_xact_tuples_hot_updated('hot'::regclass)").
			Scan(&updated, &hot))
		assert.Equal(t, 100*(n+1), updated) // counted through rollbacks
		assert.Equal(t, 100*(n+1), hot)
		exec(t, conn, "ROLLBACK")
	}
}
