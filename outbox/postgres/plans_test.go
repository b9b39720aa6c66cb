package postgres

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// planned are the statements that run while messages flow and while an operator looks, with
// arguments as SQL literals, the indexes of the outbox table that each may read, the first of which
// it must read, and how many rows of that table at most.
func planned(s plansSize) []plannedSQL {
	const found = "type ''; type_prefix ''; key ''; key_prefix ''; aggregate ''; correlation ''; correlated ''; tenant ''; class ''; since NULL; until NULL; unacknowledged false; waiting true; refused ''; limit 100; "
	return append(searches(s), []plannedSQL{
		{text: "claim", args: "'b', 1, 500, 'w', %token, 60000000, 0, 0, true, 16777216, false, '{}', '{}', 0", indexes: []string{"open", "scheduled"}, rows: 2*500 + 1, blocks: 1 + 500},
		{text: "claim_unordered", args: "'b', 1, 500, 'w', %token, 60000000, 0, 0, true, false, 16777216, '{}', '{}', 0", indexes: []string{"open", "scheduled"}, rows: 2*500 + 2, blocks: 1},
		{text: "window", args: "'b', 1, 500, false, 0, 0, '{}', '{}', 0", indexes: []string{"open", "scheduled"}, rows: 501, blocks: 1 + 500},
		{text: "ahead", args: "'b', 1, 500, 8000, 0, 0, '{}', '{}', 0, 8000", settings: "settings", indexes: []string{"open", "scheduled"}, rows: 8001, blocks: 1 + 10_000},
		{text: "locked", args: "'b', %messages", settings: "plan_settings", indexes: []string{"pkey"}, rows: 2 * 1000},
		{name: "wide", text: "window", relay: "plan_settings", args: "'b', 1, 8000, false, 0, 0, '{}', '{}', 0", indexes: []string{"open", "scheduled"}, rows: 8001, blocks: 1 + 8000},
		{name: "backfill", text: "window", args: "'b', 5, 500, false, 0, 0, '{}', '{}', 0", indexes: []string{"open", "scheduled"}, rows: 501, blocks: 1 + 500},
		{name: "above a mark", text: "window", args: "'b', 1, 500, false, %mark, 0, '{7}', '{}', 0", indexes: []string{"open", "scheduled"}, rows: 501, blocks: 1 + 500},
		{name: "without order", text: "window", args: "'b', 1, 500, true, 0, 0, '{}', '{}', 0", indexes: []string{"open", "scheduled"}, rows: 501, blocks: 1},
		{text: "take_unordered", args: "'b', 1, %message, 'w', %token, 60000000, true, %first, %last", indexes: []string{"open"}, rows: 1000},
		{text: "take", args: "'b', 1, 0, %message, 'w', %token, 60000000, true, %first, %last", indexes: []string{"open"}, rows: 1000},
		{text: "fetch", args: "'b', 1, %token, 1000000", indexes: []string{"open"}, rows: 1000},
		{text: "mark_published", args: "'b', 1, %token, %first, %last, %ids, %texts", settings: "settings", indexes: []string{"open"}, rows: 1000},
		{text: "delete_published", args: "'b', 1, %token, %first, %last, %ids", settings: "settings", indexes: []string{"open"}, rows: 1000},
		{text: "mark_other", args: "'b', 1, %token, %first, %last, %ids, %texts, %ints, %ids, %texts, %ids", settings: "settings", indexes: []string{"open", "deferred_key"}, rows: 1000},
		{text: "renew", args: "'b', 1, %token, %first, %last, 60000000", indexes: []string{"open"}, rows: 2 * 1000},
		{text: "ready", args: "'b', array_fill(0, ARRAY[12]), array_fill(0, ARRAY[12]), 0, '{}', array_fill('{}'::text, ARRAY[12]), array_fill(0, ARRAY[12])", indexes: []string{"open", "pkey", "scheduled"}, rows: 2*shards + shards*500, blocks: shards * (1 + 500)},
		{text: "backlog", settings: "settings_count", args: "brokers '{b}'; most 101; floors '{}'; versions '{}'; above '{}'; writers '{}'; sessions '{}'", indexes: []string{"open", "deferred", "pkey", "deferred_key", "scheduled", "scheduled_ids"}, rows: 2*shards*1001 + shards + 20 + 2*shards*500, blocks: 2*shards + shards*1000},
		{text: "defer", args: "'b', 1, '{}', %messages, false, %first, %last", settings: "take_settings", indexes: []string{"open"}, rows: 2 * 500, blocks: 500},
		{text: "blocks", args: "'b', 1, 500, 10, 500, 50", settings: "take_settings", indexes: []string{"pkey", "deferred_key", "scheduled"}, rows: 2*500 + 3*10*500 + 50, blocks: 2 * 500},
		{text: "lift", args: "'b', %messages, '{}', %messages, 1, %messages", settings: "take_settings", indexes: []string{"pkey", "deferred_key"}, rows: 2500, blocks: 3 * 1000},
		{text: "free", args: "'b', 'block-7', %messages, NULL, 0, 1::bigint << 40, 1", settings: "take_settings", indexes: []string{"pkey", "deferred_key"}, rows: 1000, blocks: 500},
		{text: "find", settings: "settings_find", args: found + "broker 'b'; statuses '{pending,failed,abandoned}'; message_ids '{}'", indexes: []string{"open", "deferred_key", "abandoned", "scheduled", "scheduled_ids"}, rows: s.open() + s.abandoned(), blocks: 2 * s.followers},
		{name: "abandoned", text: "matches", settings: "settings_find", args: found + "broker 'b'; statuses '{abandoned}'; message_ids '{}'", indexes: []string{"abandoned"}, rows: s.abandoned()},
		{text: "pick", settings: "settings_operate", args: "message_ids %messages; brokers %brokers", indexes: []string{"pkey"}, rows: 1000},
		{text: "blocks_of", settings: "settings_operate", args: "message_ids %messages; brokers %brokers; keys '{later-1,later-2}'", blocks: 1002},
		{text: "blocks_of_key", settings: "settings_operate", args: "broker 'b'; key 'later-1'", blocks: 1},
		{text: "forget_blocks", settings: "settings_operate", args: "block_messages %messages; block_brokers %brokers; block_shards %shards", blocks: 1000},
		{text: "move_blocks", settings: "settings_operate", args: "block_messages %messages; block_brokers %brokers; block_shards %shards; to_messages %messages; to_ids %shards", blocks: 1000},
		{text: "requeue", settings: "settings_operate", args: "message_ids %messages; brokers %brokers; behind %flags; ttl 0", indexes: []string{"pkey"}, rows: 1000},
		{text: "abandon", settings: "settings_operate", args: "message_ids %messages; brokers %brokers; error 'x'", indexes: []string{"pkey"}, rows: 1000},
		{text: "acknowledge", settings: "settings_operate", args: "message_ids %messages; brokers %brokers", indexes: []string{"pkey"}, rows: 1000},
		{text: "discard", settings: "settings_operate", args: "message_ids %messages; brokers %brokers", indexes: []string{"pkey"}, rows: 1000},
		{text: "finished_brokers", args: "most 101", indexes: []string{"published", "abandoned"}, rows: 10},
		{text: "purge_published", args: "broker 'b'; retention 60000000; limit 5000", settings: "settings_purge", indexes: []string{"published"}, rows: 2 * 5000},
		{text: "purge_abandoned", args: "broker 'b'; retention 60000000; limit 5000", settings: "settings_purge", indexes: []string{"abandoned"}, rows: 2 * s.abandoned(), blocks: 5000},
		{text: "counts", settings: "settings_count", indexes: []string{"published", "open", "deferred_key", "abandoned", "scheduled", "scheduled_ids"}, rows: s.rows()},
		{text: "last_errors", settings: "settings_count", indexes: []string{"abandoned", "failing"}, rows: s.failed() + s.abandoned()},
		{
			text: "overview", settings: "settings_browse", args: "broker 'b'; limit 10000", indexes: []string{"failing", "open", "deferred", "deferred_key", "published", "abandoned", "scheduled_ids"},
			rows: 2 * (3*11000 + 3*s.failed() + (shards+1)*1000 + 2*10001 + 100 + 1 + 4),
		},
		{text: "beside", settings: "settings_browse", args: "broker 'b'; stream 'none'; id 0; limit 1000", indexes: []string{"open", "deferred", "scheduled_ids"}, rows: 3 * 1000},
		{text: "list_pending", settings: "settings_browse", args: "broker 'b'; status 'pending'; scan 1000; limit 1000; %filter; after_id 1::bigint << 40", indexes: []string{"deferred", "open", "scheduled_ids"}, rows: 1001 + shards + 2},
		{name: "that match nothing", text: "list_pending", settings: "settings_browse", args: "broker 'b'; status 'pending'; scan 1000; limit 50; type 'x'; type_prefix ''; key ''; aggregate ''; correlation ''; correlated ''; tenant ''; class 'y'; since now(); until '2040-01-01'; after_id %mark", indexes: []string{"open", "deferred", "scheduled_ids"}, rows: 1001 + shards + 2},
		{name: "among the deferred rows", text: "list_pending", settings: "settings_browse", args: "broker 'b'; status 'pending'; scan 1000; limit 50; type 'x'; type_prefix ''; key ''; aggregate ''; correlation ''; correlated ''; tenant ''; class 'y'; since NULL; until NULL; after_id %deferred", indexes: []string{"deferred", "open", "scheduled_ids"}, rows: 1001 + shards + 2},
		{text: "list_processing", settings: "settings_browse", args: "broker 'b'; status 'processing'; scan 1000; limit 50; %filter; after_id 1::bigint << 40", indexes: []string{"open"}, rows: 1001 + shards + shards*4001},
		{text: "list_failed", settings: "settings_browse", args: "broker 'b'; status 'failed'; scan 1000; limit 1000; %filter; after_id 1::bigint << 40", indexes: []string{"failing"}, rows: 1001},
		// Published rows of one instant are read together: 500 in this table, of which this broker
		// has four in five.
		{text: "list_published", settings: "settings_browse", args: "broker 'b'; status 'published'; scan 1000; limit 1000; %filter; after_id 1::bigint << 40; after NULL", indexes: []string{"published"}, rows: 1001 + 2*500},
		{name: "a later page", text: "list_published", settings: "settings_browse", args: "broker 'b'; status 'published'; scan 1000; limit 1000; %filter; after_id 200000; after now() - interval '400100 seconds'", indexes: []string{"published"}, rows: 1001 + 2*500},
		{text: "list_abandoned", settings: "settings_browse", args: "broker 'b'; status 'abandoned'; scan 1000; limit 1000; %filter; after_id 1::bigint << 40; after NULL", indexes: []string{"abandoned"}, rows: 1001},
		// Searches read the rows that have the hash, of which some have it by chance.
		{text: "search_key", settings: "settings_browse", args: "term 'block-7'; broker ''; %page", indexes: []string{"search"}, rows: s.followers/1000 + s.byChance()},
		{name: "a page", text: "search_type", settings: "settings_browse", args: "term 't'; broker ''; %page", indexes: []string{"search"}, rows: 51},
		{name: "a later page", text: "search_type", settings: "settings_browse", args: "term 't'; broker 'b'; after_id %mark; limit 51", indexes: []string{"search"}, rows: 51 + s.byChance()},
		{name: "of a broker without rows", text: "search_type", settings: "settings_browse", args: "term 't'; broker 'none'; %page", indexes: []string{"search"}, rows: s.byChance()},
		{text: "search_aggregate", settings: "settings_browse", args: "term 'no'; aggregate_type 'order'; broker ''; %page", indexes: []string{"search"}, rows: s.byChance()},
		{text: "search_correlation", settings: "settings_browse", args: "term 'no'; broker ''; %page", indexes: []string{"search"}, rows: s.byChance()},
		{text: "search_causation", settings: "settings_browse", args: "term 'no'; broker ''; %page", indexes: []string{"search"}, rows: s.byChance()},
		{text: "search_tenant", settings: "settings_browse", args: "term 'no'; broker ''; %page", indexes: []string{"search"}, rows: s.byChance()},
		{text: "search_trace", settings: "settings_browse", args: "term '4bf92f3577b34da6a3ce929d0e0e4736'; broker ''; %page", indexes: []string{"search"}, rows: s.byChance()},
		{text: "states", settings: "settings_browse", args: "ids array_fill(1, ARRAY[1000]); brokers %brokers; message_ids %messages; keys array_fill('block-7'::text, ARRAY[1000]); shards array_fill(1, ARRAY[1000])", indexes: []string{"pkey", "deferred_key"}, rows: 2 * 1000, blocks: 2 * 1000},
		{text: "key_heads", settings: "settings_browse", args: "broker 'b'; shard 1; keys array_fill('block-7'::text, ARRAY[1000])", indexes: []string{"open"}, rows: 1000},
		{text: "message", settings: "settings_browse", args: "message_id lpad(to_hex(%first), 32, '0'); shown 1000; limit 100", indexes: []string{"pkey"}, rows: 1},
		{text: "siblings", settings: "settings_browse", args: "message_id lpad(to_hex(%first), 32, '0'); first lpad('', 32, '0'); last lpad('', 32, 'f'); shown 1000; limit 100", indexes: []string{"pkey"}, rows: 101},
		{text: "key_blocks", settings: "settings_browse", args: "broker 'b'; limit 100", indexes: []string{"pkey"}, rows: 100, blocks: shards * 2 * 2000},
		{text: "failed_keys", settings: "settings_browse", args: "broker 'b'; limit 100", indexes: []string{"failing"}, rows: 2000},
		{text: "followers", settings: "settings_browse", args: "broker 'b'; keys array_fill('block-7'::text, ARRAY[100]); ids array_fill(0, ARRAY[100]); shards array_fill(1, ARRAY[100]); max_count 1000", indexes: []string{"deferred_key", "open"}, rows: 100*20 + shards*1000},
		{text: "deferred_followers", settings: "settings_browse", args: "broker 'b'; keys array_fill('block-7'::text, ARRAY[100]); ids array_fill(0, ARRAY[100]); shards array_fill(1, ARRAY[100]); max_count 9", indexes: []string{"deferred_key"}, rows: 100 * 10},
		{text: "errors_of", settings: "settings_browse", args: "broker 'b'; message_ids %messages", indexes: []string{"pkey"}, rows: 1000},
		{text: "stranded", args: "broker 'b'; heads true; after_id -1::bigint << 40; limit 1000", indexes: []string{"deferred"}, rows: 1000},
		{text: "entries", settings: "settings_browse", args: "broker 'b'; limit 100", blocks: 2 * shards * 100},
	}...)
}

// searches within lists read no row but those with the hash of the term: one pass through the index of searches.
func searches(s plansSize) (plans []plannedSQL) {
	const page = "broker ''; %filter; statuses '{pending,published,abandoned}'; after_broker ''; after_rank -1; after NULL; after_row 1::bigint << 40; limit 51"
	for _, by := range admin.FindBys()[1:] {
		plan := plannedSQL{
			name: string(by), text: "search_" + string(by) + " in lists", settings: "settings_browse", indexes: []string{"search"},
			args: "term 'no value of a row'; aggregate_type ''; " + page, rows: s.byChance(),
		}
		plans = append(plans, plan)
		if by == admin.ByKey {
			plan.name, plan.args, plan.rows = "a key", strings.Replace(plan.args, "no value of a row", "block-7", 1), s.followers/1000+s.byChance()
			plans = append(plans, plan)
		}
	}
	return plans
}

// jitAboveCost is PostgreSQL's default of jit_above_cost.
const jitAboveCost = 100_000.0

// shards of all classes.
const shards = outbox.Classes * outbox.Shards

// A plansSize is how many rows a table of plans has: finished ones have the lowest ids, then come
// those that can be claimed, those that are scheduled, and those that stand behind a block.
type plansSize struct{ finished, claimable, scheduled, followers int }

// thePlansSize is a million rows in the long run. A twelfth of it is enough for the planner to tell
// good plans from bad ones, and for a statement that reads a whole table, or all blocks, to exceed
// its bound.
func thePlansSize() plansSize {
	if testenv.Long() {
		return plansSize{finished: 500_000, claimable: 380_000, scheduled: 100_000, followers: 20_000}
	}
	return plansSize{finished: 15_000, claimable: 24_000, scheduled: 30_000, followers: 10_000}
}

func (s plansSize) rows() int      { return s.finished + s.claimable + s.scheduled*11/10 + s.followers }
func (s plansSize) open() int      { return s.claimable + s.scheduled*11/10 + s.followers }
func (s plansSize) failed() int    { return s.claimable / 1000 }
func (s plansSize) abandoned() int { return s.finished / 100 }

// byChance is how many rows may share the hash of a key with another: each key has a thousandth of
// those that are claimable or finished.
func (s plansSize) byChance() int { return (s.claimable + s.finished) / 1000 }

// claimed and last are the range of ids of a claim.
func (s plansSize) claimed() int { return s.finished + s.claimable/4 }
func (s plansSize) last() int    { return s.claimed() + 5000 }

// replace fills these numbers into a text.
func (s plansSize) replace(text string) string {
	return strings.NewReplacer(
		"%finished", strconv.Itoa(s.finished), "%claimable", strconv.Itoa(s.claimable), "%scheduled", strconv.Itoa(s.scheduled), "%followers", strconv.Itoa(s.followers),
		"%first", strconv.Itoa(s.claimed()), "%last", strconv.Itoa(s.last()), "%mark", strconv.Itoa(s.finished+s.claimable/2),
		"%deferred", strconv.Itoa(s.finished+s.claimable+s.scheduled*7/10), "%ids", repeated(strconv.Itoa(s.claimed()+1000), 500),
		"%message,", messageIDs(s.claimed()+1000, 1)+",", "%messages", messageIDs(s.claimed(), 500, s.finished+s.claimable+1, 500),
	).Replace(text)
}

type plannedSQL struct {
	name, text, args string
	settings         string // of the transaction in which it runs
	relay            string // settings of a relay's transaction that the test leaves out, to see plans for given arguments, too
	indexes          []string
	rows             int
	blocks           int // of the table of what waits, at most so many rows
}

// literals are the arguments in their order. Those of the administration's statements are told by
// name.
func (p plannedSQL) literals(t *testing.T, s plansSize) string {
	t.Helper()
	return literalsOf(t, p.text, strings.NewReplacer("%token", "gen_random_uuid()", "%texts", repeated("'x'", 500), "%brokers", repeated("'b'", 1000),
		"%ints", repeated("1", 500), "%shards", repeated("1", 1000), "%flags", repeated("false", 1000), "%page", "after_id 1::bigint << 62; limit 51", "%filter", "type ''; type_prefix ''; key ''; aggregate ''; correlation ''; correlated ''; tenant ''; class ''; since NULL; until NULL").Replace(s.replace(p.args)))
}

func (p plannedSQL) check(t *testing.T, conn *pgx.Conn, s plansSize, table, state string) {
	t.Helper()
	plan := explainAnalyze(t, conn, textOf(t, p.text, table), p.literals(t, s), p.settings)
	state = fmt.Sprintf("%s %s, %s", p.text, p.name, state)
	var ours []string
	for _, index := range plan.indexes() {
		if name, ok := strings.CutPrefix(index, table+"_"); ok && !slices.ContainsFunc([]string{"blocks", "shards", "pauses"}, func(small string) bool { return strings.HasPrefix(name, small) }) {
			ours = append(ours, name)
		}
	}
	if len(p.indexes) > 0 {
		assert.Contains(t, ours, p.indexes[0], state)
	}
	assert.Subset(t, p.indexes, ours, state)
	assert.Subset(t, []string{table + "_shards", table + "_pauses"}, plan.whole(), "%s: reads a whole table", state) // of a few rows
	assert.LessOrEqual(t, plan.read(table), p.rows, "%s: rows read", state)
	assert.LessOrEqual(t, plan.read(table+"_key_blocks"), p.blocks, "%s: blocks read", state)
	compiles := func(settings string) bool {
		return settings == "" || !strings.Contains(textOf(t, settings, table), "'jit', 'off'")
	}
	if compiles(p.settings) && compiles(p.relay) {
		assert.Less(t, plan.Cost, jitAboveCost, "%s: looks so expensive that the server compiles it, which takes longer than the statement", state)
	}
	assert.False(t, plan.quadratic(), "%s: goes through one list for each entry of another", state)
}

// TestPlans keeps the planner on the indexes that the statements were written for, and bounds the
// rows that they read, in a large table: with plans made for the arguments and with generic ones,
// before the table was analysed for the first time, with statistics of a time when nothing was
// open, and with fresh ones.
func TestPlans(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	dsn, size := testenv.Postgres(t), thePlansSize()
	const table = "plans"
	_, err := openStore(t, dsn, table).Migrate(t.Context())
	require.NoError(t, err)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) })
		return conn
	}
	conn, other := connect(), connect()
	check := func(state string) {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			exec(t, conn, "SET LOCAL plan_cache_mode = "+mode)
			for _, p := range planned(size) {
				p.check(t, conn, size, table, state+", "+mode)
			}
		}
	}
	exec(t, conn, "SET jit = off") // compiling what fills the table, and looks at it, takes most of the time
	exec(t, conn, size.replace(readTestdata(t, "published.sql")))
	exec(t, conn, "BEGIN")
	exec(t, conn, size.replace(readTestdata(t, "open.sql")))
	exec(t, conn, "SELECT set_config('fanout.shard', 'held', false), set_config('fanout.turn', 'mine', false), "+
		size.replace("set_config('fanout.first', '%first', false), set_config('fanout.last', '%last', false)"))
	check("never analysed")
	exec(t, other, "ANALYZE plans, plans_key_blocks") // sees nothing of what is open
	check("analysed when nothing was open")
	exec(t, conn, "COMMIT")
	exec(t, conn, "VACUUM (ANALYZE) plans, plans_key_blocks")
	exec(t, conn, "BEGIN")
	check("analysed")
	exec(t, conn, "COMMIT")
}

// TestPlansOfAnEmptyTable: a connection keeps a plan that it made while the table had no rows, or a few,
// until the table is analysed. With the settings that each statement has, and no others, it reads no
// table from end to end by then, and finds blocks by their keys.
func TestPlansOfAnEmptyTable(t *testing.T) {
	t.Parallel()
	dsn, size := testenv.Postgres(t), thePlansSize()
	_, err := openStore(t, dsn, "empty").Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, size.replace("SELECT set_config('fanout.session', '7', false), set_config('fanout.turn', 'mine', false), set_config('fanout.first', '%first', false), set_config('fanout.last', '%last', false)"))
	statements := map[string][]string{ // by what comes before them in the transaction
		"try_lock":              {"claim", "take"},
		"plan_settings":         {"window", "claim_unordered", "fetch"},
		"take_settings":         {"take_unordered"},
		"lock":                  {"lift", "free", "defer", "renew", "ready"},
		"lock take_settings":    {"blocks"},
		"settings":              {"mark_published", "delete_published"},
		"lock settings":         {"mark_other"},
		"lock settings_operate": {"pick", "blocks_of", "blocks_of_key", "forget_blocks", "move_blocks", "requeue", "abandon"},
	}
	const byBroker = "Index Cond: (target_broker = $1)\n"
	blocked := map[string]int{"claim": 1, "window": 1, "claim_unordered": 1, "ready": 1} // the first block of a broker, or its pause
	all := planned(size)
	check := func(state string) {
		for before, texts := range statements {
			for _, text := range texts {
				exec(t, conn, "BEGIN")
				for name := range strings.FieldsSeq(before) {
					if strings.HasSuffix(name, "lock") {
						exec(t, conn, readSQL(name, "empty"), 1)
					} else {
						exec(t, conn, textOf(t, name, "empty"))
					}
				}
				exec(t, conn, "SET LOCAL plan_cache_mode = force_generic_plan")
				p := all[slices.IndexFunc(all, func(p plannedSQL) bool { return p.text == text })]
				plan := explainOnly(t, conn, textOf(t, p.text, "empty"), p.literals(t, size))
				assert.NotContains(t, plan, "Seq Scan", "%s, %s", text, state)
				assert.Equal(t, blocked[text], strings.Count(plan, byBroker), "%s, %s: by the broker alone\n%s", text, state, plan)
				exec(t, conn, "ROLLBACK")
			}
		}
		exec(t, conn, "BEGIN")
		exec(t, conn, textOf(t, "settings_purge", "empty"))
		purge := explainOnly(t, conn, textOf(t, "purge_abandoned", "empty"), literalsOf(t, "purge_abandoned", "broker 'b'; retention 60000000; limit 5000"))
		assert.Contains(t, purge, "empty_blocks_pkey", "%s: the block of a row, and not all blocks of the broker", state)
		assert.NotContains(t, purge, "empty_blocks_wake", state)
		exec(t, conn, "ROLLBACK")
	}
	check("no rows, never analysed")
	exec(t, conn, "VACUUM (ANALYZE) empty, empty_key_blocks, empty_shards")
	check("no rows, analysed")
	exec(t, conn, fill("empty", 20))
	exec(t, conn, "VACUUM (ANALYZE) empty, empty_key_blocks, empty_shards")
	check("a few rows, analysed")
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
	exec(t, conn, fill("hot", 3000))
	token, lease := pgUUID([16]byte{1}), int64(60e6)
	var (
		first, last int64
		messages    []pgtype.UUID
	)
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT min(id), max(id), array_agg(message_id) FROM (SELECT id, message_id FROM hot WHERE target_broker = 'a' AND shard = 0 ORDER BY id LIMIT 100) AS head").
		Scan(&first, &last, &messages))
	for n, text := range []string{"claim", "claim_unordered", "take"} {
		args := [][]any{
			{100, "w", token, lease, 0, 0, true, 1 << 20, false, []int64{}, []int64{}, 0},
			{100, "w", token, lease, 0, 0, true, true, 1 << 20, []int64{}, []int64{}, 0},
			{0, messages, "w", token, lease, false, first, last},
		}[n]
		counted := func() (updated, hot int) { // through rollbacks, until the server collects its figures between transactions
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_stat_get_xact_tuples_updated('hot'::regclass), pg_stat_get_xact_tuples_hot_updated('hot'::regclass)").
				Scan(&updated, &hot))
			return updated, hot
		}
		exec(t, conn, "BEGIN")
		exec(t, conn, readSQL("try_lock", "hot"), shardLock("a", 0))
		updated, hot := counted()
		exec(t, conn, readSQL(text, "hot"), append([]any{"a", 0}, args...)...)
		updatedThen, hotThen := counted()
		assert.Equal(t, 100, updatedThen-updated, text)
		assert.Equal(t, 100, hotThen-hot, text)
		exec(t, conn, "ROLLBACK")
	}
}

// messageIDs is an array literal of ids, as the files in testdata number them: of each pair the
// first and how many that follow.
func messageIDs(ranges ...int) string {
	var ids []string
	for pair := range slices.Chunk(ranges, 2) {
		for i := range pair[1] {
			ids = append(ids, fmt.Sprintf("%032x", pair[0]+i))
		}
	}
	return "'{" + strings.Join(ids, ",") + "}'"
}

//go:embed testdata
var testdata embed.FS

func readTestdata(t *testing.T, name string) string {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(text)
}

// fill writes rows of three brokers.
func fill(table string, n int) string {
	return fmt.Sprintf(`INSERT INTO %s (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), (ARRAY['a', 'b', 'c'])[i %% 3 + 1], 's', 't', 'key-' || i %% 1000, convert_to(repeat('x', 200), 'UTF8')
		  FROM generate_series(1, %d) AS i`, table, n)
}
