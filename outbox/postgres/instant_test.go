package postgres

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// However many rows were abandoned at one instant, as an import or an operator's action can leave
// them, a page of them reads no more than it looks at, in the order of an index: else each page
// would read all of them, and a list of 300,000 would take as many times longer.
func TestListOfOneInstant(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	const table, scan = "instant", 100
	_, err := openStore(t, dsn, table).Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, `INSERT INTO instant (message_id, target_broker, stream, type, payload, status, finished_at)
		SELECT lpad(to_hex(i), 32, '0')::uuid, 'b', 's', 't', '{}', 'abandoned', '2026-01-02' FROM generate_series(1, 3000) AS i`)
	exec(t, conn, "ANALYZE instant")
	exec(t, conn, "BEGIN")
	for _, place := range []string{"after_id 1::bigint << 40; after NULL", "after_id 1500; after '2026-01-02'"} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			exec(t, conn, "SET LOCAL plan_cache_mode = "+mode)
			p := plannedSQL{text: "list_abandoned", settings: "settings_browse", args: fmt.Sprintf("broker 'b'; status 'abandoned'; scan %d; limit %[1]d; %%filter; %s", scan, place)}
			plan := explainAnalyze(t, conn, textOf(t, p.text, table), p.literals(t, plansSize{}), p.settings)
			assert.Equal(t, []string{"instant_abandoned"}, plan.indexes(), place)
			assert.LessOrEqual(t, plan.read(table), scan+1, "%s, %s", place, mode)
			plan.walk(func(n *planNode) { assert.NotEqual(t, "Incremental Sort", n.Type, "%s, %s", place, mode) })
		}
	}
	exec(t, conn, "ROLLBACK")
}
