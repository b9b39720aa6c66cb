package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// TestPlansOfAHistory: what people and the purge ask of an outbox with a history reads what it shows, and
// no day from end to end, with plans made for the arguments and with generic ones.
func TestPlansOfAHistory(t *testing.T) {
	testenv.NeedLong(t)
	t.Parallel()
	p := newPast(t)
	const days, each = 6, 3000
	for n := range days {
		exec(t, p.conn, `INSERT INTO kept_history (id, created_at, message_id, priority, shard, target_broker, stream, type, ordering_key, content_type, deferred, isolated,
				crashes, attempts, published_at, finished_at, status, payload)
			SELECT $1::bigint * $2::bigint + n, now(), lpad(to_hex($1::bigint * $2::bigint + n), 32, '0')::uuid, 0, 0, CASE WHEN n % 2 = 0 THEN 'a' ELSE 'b' END, 's', 'type-' || n, 'key-' || n, '',
			       false, n < 0, 0, 1, now() - interval '1 second' * n / 100, now() - interval '1 second' * n / 100, 'published', 'x'
			  FROM generate_series(1, $2::bigint) AS n`, days-n, each)
		if n < days-1 {
			p.older(days - n)
		}
	}
	exec(t, p.conn, "VACUUM (ANALYZE) kept_history")
	exec(t, p.conn, "ANALYZE kept")
	const filter = "type ''; type_prefix ''; key ''; aggregate ''; correlation ''; correlated ''; tenant ''; class ''; since NULL; until NULL"
	for _, q := range []struct {
		text, settings, args string
		most                 int // rows that are read, of the history
	}{
		{"message", "settings_browse", "message_id lpad(to_hex(9007), 32, '0'); shown 1000; limit 100", 1},
		{"search_key", "settings_browse", "term 'key-7'; broker ''; after_id 1::bigint << 40; limit 100", 2 * days},
		{"list_published", "settings_browse", "broker 'b'; status 'published'; scan 100; limit 100; " + filter + "; after_id 1::bigint << 40; after NULL", 101 + 2*days},
		{"finished_brokers", "", "most 101", 2 * days},
		{"brokers", "", "most 101", 2 * days},
		{"overview", "settings_browse", "broker 'b'; limit 100", 101 + 3*days},
		{"counts", "settings_count", "", days * each},
		{"history_days", "settings_browse", "most 101", 2 * days},
		{"history_rows", "settings_count", "day to_char(now() AT TIME ZONE 'UTC' - interval '3 days', 'YYYY-MM-DD')", each},
		{"purge_history", "settings_purge", "broker 'b'; day to_char(now() AT TIME ZONE 'UTC' - interval '3 days', 'YYYY-MM-DD'); limit 100", 200},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			exec(t, p.conn, "BEGIN")
			exec(t, p.conn, "SET LOCAL plan_cache_mode = "+mode)
			exec(t, p.conn, "SET LOCAL jit = off")
			text := p.Text(q.text)
			require.NotEmpty(t, text, q.text)
			plan := explainAnalyze(t, p.conn, text, literalsFor(t, p.Store, q.text, q.args), q.settings)
			read := 0
			plan.walk(func(n *planNode) {
				if strings.HasPrefix(n.Relation, "kept_day_") {
					assert.NotEqual(t, "Seq Scan", n.Type, "%s, %s: %s", q.text, mode, n.Relation)
					read += int((n.Rows + n.Filtered + n.Rechecked) * n.Loops)
				}
			})
			assert.Positive(t, read, "%s, %s", q.text, mode)
			assert.LessOrEqual(t, read, q.most, "%s, %s", q.text, mode)
			exec(t, p.conn, "ROLLBACK")
		}
	}
}
