package postgres

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// TestPlansOfASmallTable: plans are made once, and the table may have had a few rows then. With the
// settings that each statement of an exchange has, and no others, it reads no table from end to
// end.
func TestPlansOfASmallTable(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, "small").Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, fill("small", 20, "pending"))
	exec(t, conn, "SELECT set_config('fanout.first', '1', false), set_config('fanout.last', '20', false)")
	for _, analysed := range []bool{false, true} {
		if analysed {
			exec(t, conn, "VACUUM (ANALYZE) small, small_key_blocks, small_shards")
		}
		for text, settings := range map[string]string{
			"mark_published": "settings", "delete_published": "settings", "claim": "try_lock", "claim_unordered": "plan_settings", "window": "plan_settings", "take": "try_lock", "take_unordered": "take_settings", "fetch": "plan_settings",
		} {
			exec(t, conn, "BEGIN")
			if settings == "try_lock" {
				exec(t, conn, readSQL(settings, "small"), 1)
			} else {
				exec(t, conn, readSQL(settings, "small"))
			}
			all := planned(thePlansSize())
			p := all[slices.IndexFunc(all, func(p plannedSQL) bool { return p.text == text })]
			assert.NotContains(t, explainOnly(t, conn, textOf(t, p.text, "small"), p.literals(t, thePlansSize())), "Seq Scan", "%s, analysed: %v", text, analysed)
			exec(t, conn, "ROLLBACK")
		}
	}
}
