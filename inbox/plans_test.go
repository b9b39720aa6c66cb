package inbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/inbox"
)

// plan explains one of the statements with values in place of its parameters, as a prepared
// statement that is planned for any values.
func (p *place) plan(name string, args ...string) string {
	p.t.Helper()
	text := inbox.StatementsOf("postgres", p.table)[name]
	pool, err := p.db.DB()
	require.NoError(p.t, err)
	conn, err := pool.Conn(p.t.Context())
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, conn.Close()) }()
	_, err = conn.ExecContext(p.t.Context(), "SET plan_cache_mode = force_generic_plan")
	require.NoError(p.t, err)
	_, err = conn.ExecContext(p.t.Context(), "PREPARE explained AS "+text)
	require.NoError(p.t, err)
	rows, err := conn.QueryContext(p.t.Context(), "EXPLAIN EXECUTE explained("+strings.Join(args, ", ")+")")
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, rows.Close()) }()
	var lines []string
	for rows.Next() {
		var line string
		require.NoError(p.t, rows.Scan(&line))
		lines = append(lines, line)
	}
	require.NoError(p.t, rows.Err())
	_, err = conn.ExecContext(p.t.Context(), "DEALLOCATE explained")
	require.NoError(p.t, err)
	return strings.Join(lines, "\n")
}

// In a large table every statement finds its rows by an index.
func TestPlans(t *testing.T) {
	t.Parallel()
	p := on(t, "postgres")
	p.exec("INSERT INTO " + p.table + " (message_id, consumer, status, updated_at) SELECT gen_random_uuid(), 'c' || n % 10, 'handled', now() - n * interval '1 second' " +
		"FROM generate_series(1, 50000) AS n")
	p.exec("INSERT INTO " + p.table + " (message_id, consumer, status, updated_at) SELECT gen_random_uuid(), 'c' || n % 10, 'dead_letter', now() - n * interval '1 second' " +
		"FROM generate_series(1, 100) AS n")
	p.exec("VACUUM ANALYZE " + p.table)
	id := "'" + uuid.NewString() + "'"
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"claim":             {[]string{"'c1'", id, "'t'", "'s'"}, []string{"Conflict Arbiter Indexes: " + p.table + "_pkey"}},
		"claim_token":       {[]string{"'c1'", id, "'t'", "'s'"}, []string{"Index Scan using " + p.table + "_pkey"}},
		"count_token":       {[]string{"'c1'", id, "'t'", "'s'", "'e'", "'a'", "'p'", "1", "5"}, []string{"Index Scan using " + p.table + "_pkey"}},
		"finish_token":      {[]string{"'c1'", id, "'s'"}, []string{"Index Scan using " + p.table + "_pkey"}},
		"look":              {[]string{"'c1'", id, "'s'"}, []string{"Index Scan using " + p.table + "_pkey"}},
		"count":             {[]string{"'c1'", id, "'t'", "'s'", "'e'", "'a'", "'p'", "1", "5"}, []string{"Conflict Arbiter Indexes: " + p.table + "_pkey"}},
		"types":             {[]string{"'c1'", "1000"}, []string{p.table + "_pkey"}},
		"progress":          {[]string{"'c1'", `'["` + uuid.NewString() + `"]'`, "100"}, []string{p.table + "_pkey"}},
		"probe":             {[]string{"'c1'", id, "'s'"}, []string{"Conflict Arbiter Indexes: " + p.table + "_pkey"}},
		"finish":            {[]string{"'c1'", id, "'s'"}, []string{"Index Scan using " + p.table + "_pkey"}},
		"redrive":           {[]string{"'c1'", `'["` + uuid.NewString() + `"]'`, "''"}, []string{p.table + "_pkey"}},
		"redrive_all":       {[]string{"'c1'", "''", "100"}, []string{p.table + "_age", "Tid Scan"}},
		"dead_letter":       {[]string{"''", "''", "''", id, "100", "''"}, []string{p.table + "_age"}},
		"purge_handled":     {[]string{"3600000000", "5000"}, []string{"Index Scan using " + p.table + "_age", "Tid Scan"}},
		"purge_dead_letter": {[]string{"3600000000", "5000"}, []string{p.table + "_age", "Tid Scan"}},
		"purge_expected":    {[]string{"3600000000", "5000"}, []string{p.table + "_age", "Tid Scan"}},
	} {
		plan := p.plan(name, test.args...)
		for _, want := range test.want {
			require.Contains(t, plan, want, "%s\n%s", name, plan)
		}
		require.NotContains(t, plan, "Seq Scan", "%s\n%s", name, plan)
	}
	report, err := p.purger(inbox.PurgeConfig{Handled: 10 * time.Hour, BatchSize: 1000}).Purge(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 14000, report.Handled, 100)
}
