package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// fillTable makes rows: nine of ten published, the rest open, of 1,000 keys. $1 is how many
// thousands.
const fillTable = `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, status, published_at, finished_at)
	SELECT UNHEX(LEFT(SHA2(n, 256), 32)), 'b', 's', 'T', CONCAT('key-', n % 1000), '{}'
	     , IF(n % 10 > 0, 'published', 'pending'), IF(n % 10 > 0, UTC_TIMESTAMP(6), NULL), IF(n % 10 > 0, UTC_TIMESTAMP(6) - INTERVAL n SECOND, NULL)
	  FROM (SELECT high.slot * 1000 + low.slot AS n
	          FROM outbox_messages_key_slots AS high CROSS JOIN outbox_messages_key_slots AS low WHERE low.slot < 1000 AND high.slot < ?) AS numbers
	 ORDER BY n`

// fillTroubles makes rows that an operator looks at, a quarter each: failed ones that wait, deferred
// ones, abandoned ones, and rows of low priority.
const fillTroubles = `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, priority, status, deferred, locked_until, finished_at, last_error)
	SELECT UNHEX(LEFT(SHA2(CONCAT('trouble ', n), 256), 32)), 'b', 's', 'T', CONCAT('key of trouble ', n % 200), '{}', IF(n % 4 = 3, -1, 0)
	     , CASE n % 4 WHEN 0 THEN 'failed' WHEN 2 THEN 'abandoned' ELSE 'pending' END
	     , n % 4 = 1
	     , IF(n % 4 IN (0, 1), '2100-01-01', NULL), IF(n % 4 = 2, UTC_TIMESTAMP(6) - INTERVAL n SECOND, NULL)
	     , IF(n % 4 IN (0, 2), CONCAT('{"class":"permanent","message":"no","at":"2026-01-01T00:00:00.000000Z","attempt":', n, '}'), NULL)
	  FROM (SELECT high.slot * 1000 + low.slot AS n
	          FROM outbox_messages_key_slots AS high CROSS JOIN outbox_messages_key_slots AS low WHERE low.slot < 1000 AND high.slot < ?) AS numbers
	 ORDER BY n`

// fillKey makes rows of one key, of another broker: as many can be claimed as a window holds, the
// others are deferred behind them; and of another one, all of low priority. Each shard of low
// priority has rows.
const fillKey = `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, priority, deferred)
	SELECT UNHEX(LEFT(SHA2(CONCAT('large ', n), 256), 32)), 'c', 's', 'T', CASE WHEN n < 100 THEN CONCAT('key-', n) WHEN n % 2 = 0 THEN 'large' ELSE 'low' END, '{}'
	     , IF(n < 100 OR n % 2 = 1, -1, 0), n % 2 = 0 AND n > 1100
	  FROM (SELECT high.slot * 1000 + low.slot AS n
	          FROM outbox_messages_key_slots AS high CROSS JOIN outbox_messages_key_slots AS low WHERE low.slot < 1000 AND high.slot < ?) AS numbers
	 ORDER BY n`

// fillBlocks makes blocks of rows that wait alone, of which a few are due, and one of each key that
// has deferred rows.
var fillBlocks = []string{
	`INSERT INTO outbox_messages_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
	SELECT 'b', shard, NULL, id, message_id, IF(id % 1000 = 0, '2020-01-01', '9999-12-31'), 'backoff'
	  FROM outbox_messages WHERE status = 'published' AND id % 10 = 0`,
	`INSERT INTO outbox_messages_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
	SELECT 'b', m.shard, m.ordering_key, m.id, m.message_id, IF(m.id % 8 = 0, '9999-12-31', '2100-01-01'), IF(m.id % 8 = 0, 'operator', 'backoff')
	  FROM outbox_messages AS m
	  JOIN (SELECT MIN(id) AS id FROM outbox_messages WHERE target_broker = 'b' AND deferred = 1 GROUP BY ordering_key) AS first ON first.id = m.id`,
}

const (
	planWindow = 500  // rows of a claim
	planPage   = 1000 // rows that an operator's page may read in each part of the index
	planShards = 12   // of all classes
	planHead   = 20_000
)

// plan is a statement of delivery or of operators, and how many rows it may read, small tables
// included.
type plan struct {
	name  string
	given args // beside those of all
	reads int
	keep  bool // what it has changed, for those that come after it
	whole bool // it reads a whole table, as its comment says
}

// plans are all statements but those that migrate, diagnose and work on a lock's name, or on a table
// of a few rows.
func plans(s plansSize, ids planIDs) []plan {
	back := make([]other, planWindow)
	for i, id := range ids.open {
		back[i].ID, back[i].Status = id, "pending"
	}
	window, page, perPage := planWindow, planPage, (planShards+2)*(planPage+2)
	listed := args{
		"type": "", "type_prefix": "", "aggregate": "", "correlation": "", "correlated": "", "tenant": "", "class": "", "since": time.Time{}, "until": time.Time{}, "after": time.Time{}, "after_id": int64(1) << 60,
		"limit": int64(page), "scan": int64(page),
	}
	list := func(status string) args {
		given := maps.Clone(listed)
		given["status"], given["key"] = status, ""
		return given
	}
	found := maps.Clone(listed)
	maps.Copy(found, args{
		"key": "", "key_prefix": "", "unacknowledged": false, "refused": "", "waiting": false, "statuses": sqladmin.List{Items: []string{"failed", "abandoned"}},
		"message_ids": sqladmin.List{Items: ids.messages}, "brokers": sqladmin.List{Items: []string{"a", "b"}},
	})
	repaired := make([]map[string]any, len(ids.troubles))
	for i, id := range ids.troubles {
		repaired[i] = map[string]any{"id": id, "shard": 1, "to": id, "behind": i % 2}
	}
	picked := args{
		"ids": sqladmin.List{Items: ids.troubles}, "rows": sqladmin.List{Items: repaired}, "blocks": sqladmin.List{Items: repaired},
		"ttl": time.Duration(0), "error": sqladmin.Text("{"), "lock_brokers": sqladmin.List{Items: []string{"b"}},
	}
	blockers := make([]map[string]any, len(ids.troubles))
	for i, id := range ids.troubles {
		blockers[i] = map[string]any{"id": id, "shard": 1, "key": "key of trouble " + strconv.Itoa(i)}
	}
	searched := maps.Clone(found)
	maps.Copy(searched, args{
		"term": sqladmin.Text("no value of a row"), "aggregate_type": sqladmin.Text(""), "broker": "", "after_id": int64(math.MaxInt64), "limit": int64(page),
		"after_broker": "", "after_rank": int64(-1), "after_row": int64(math.MaxInt64),
	})
	without := database{&Store{}}.Marks()
	n := len(ids.troubles)
	// A search is one pass through the index of searches, whose entries are small, and reads the rows that it finds.
	var all []plan
	for _, by := range []string{"key", "aggregate", "causation", "trace", "tenant", "type"} {
		for _, suffix := range []string{"", " in lists"} {
			all = append(all, plan{name: "search_" + by + suffix, given: searched, reads: s.all() + 10*page, whole: true})
		}
	}
	for _, name := range []string{"still", "lock", "try_lock", "turn", "version", "make_shard", "first_open"} {
		all = append(all, plan{name: name, reads: 10})
	}
	for _, name := range []string{
		"replace_blocks", "bring_back", "drop_loners", "pick", "forget_blocks", "abandon", "acknowledge", "discard", "purge", "wait_again",
	} {
		all = append(all, plan{name: name, given: picked, reads: 5*n + 10})
	}
	return append(all, []plan{
		{name: "window", reads: 8 * window},
		{name: "window", given: args{"broker": "c", "shard": ids.large}, reads: 8 * window}, // deferred rows of the same key are no business of it
		{name: "window", given: args{"broker": "c", "shard": ids.low}, reads: 8 * window},
		{name: "window_marked", reads: 12 * window},
		{name: "ahead", given: args{"ahead": 10 * planWindow, "near": 8 * planWindow, "per_key": planWindow}, reads: 20 * 8 * window},
		{name: "lock_ready", reads: 3 * window},
		{name: "lock_late", reads: 3 * window},
		{name: "highest", reads: 5},
		{name: "unfinished", reads: 2 * window},
		{name: "existing", reads: 4 * window},
		{name: "finished", reads: 4 * window},
		{name: "unlocked", reads: 5 * window},
		{name: "waiting", reads: 3 * planHead},                  // which it reads, and counts in between
		{name: "ready_unmarked", reads: planShards*20 + window}, // those that are leased by then
		{name: "ready", given: args{"ids": "[0]"}, reads: planShards*20 + window},
		{name: "ready", reads: planShards*20 + (1+planShards)*window},
		{name: "blocks", reads: 8 * window},
		{name: "take", reads: 3 * window, keep: true},
		{name: "fetch", reads: 4 * window},
		{name: "renew_late", reads: 3 * window},
		{name: "renew", reads: 4 * window},
		{name: "mark_other", given: args{"rows": jsonList(back)}, reads: 5*window + 2},
		{name: "mark_published", reads: 2 * window},
		{name: "delete_published", given: args{"ids": jsonList(ids.open[:min(window, len(ids.open))])}, reads: 5 * window},
		{name: "first_abandoned", reads: 5 * window},
		{name: "block_abandoned", given: args{"ids": jsonList(ids.heads)}, reads: 5 * len(ids.heads)},
		{name: "held_before", given: args{"ids": jsonList(ids.blocks)}, reads: 8 * len(ids.blocks)},
		{name: "undefer_before", given: args{"key": "key of trouble 1", "block": ids.blocks[0] + 1}, reads: 10},
		{name: "lock_rows", reads: 4 * window},
		{name: "admit", reads: 5 * window},
		{name: "make_blocks", given: args{"ids": jsonList(ids.heads)}, reads: 5 * len(ids.heads)},
		{name: "set_aside", reads: 5 * window},
		{name: "followers", given: args{"key": "key of trouble 1"}, reads: 4 * window},
		{name: "followers", given: args{"broker": "c", "key": "large", "shard": ids.large}, reads: 4 * window},
		{name: "followers", given: args{"broker": "c", "key": "low", "shard": ids.low}, reads: 10}, // none of which is deferred
		{name: "wake_blocks", given: args{"ids": jsonList(ids.blocks)}, reads: 5 * len(ids.blocks)},
		{name: "rest_blocks", given: args{"ids": jsonList(ids.blocks)}, reads: 6 * len(ids.blocks)},
		{name: "drop_blocks", given: args{"ids": jsonList(ids.blocks)}, reads: 5 * len(ids.blocks)},
		{name: "move_block", given: args{"block": ids.blocks[0], "next": ids.troubles[0]}, reads: 10},

		{name: "lock_shards", given: picked, reads: 100},
		{name: "blocks_of", given: picked, reads: 16 * n},
		{name: "blocks_of_key", given: args{"key": sqladmin.Text("key of trouble 1")}, reads: 10},
		{name: "move_blocks", given: picked, reads: 8 * n},
		{name: "requeue", given: picked, reads: 8 * n},
		{name: "find", given: found, reads: 3 * (s.open() + s.troubles/4)},
		{name: "find_everywhere", given: found, reads: 3 * (s.open() + s.troubles/4)},
		{name: "find_by_message", given: found, reads: 6 * n},
		{name: "matches", given: found, reads: 3 * (s.open() + s.troubles/4)},
		{name: "matches_everywhere", given: found, reads: 3 * (s.open() + s.troubles/4)},
		{name: "matches_by_message", given: found, reads: 6 * n},
		{name: "list_pending", given: list("pending"), reads: 4*perPage + 4*page},
		{name: "list_processing", given: list("processing"), reads: 4*perPage + 4*page + 4*min(planShards*planHead, s.open())},
		{name: "list_failed", given: list("failed"), reads: 15 * page},
		{name: "list_published", given: list("published"), reads: 15 * page},
		{name: "list_abandoned", given: list("abandoned"), reads: 15 * page},
		{name: "states", given: picked, reads: 12 * n},
		{name: "key_heads", given: args{"shard": ids.large, "keys": jsonList([]string{"large"})}, reads: 4 * page},
		{name: "message", given: args{"message_id": ids.messages[0], "shown": 1000, "limit": 100}, reads: 10},
		{name: "siblings", given: args{"message_id": ids.messages[0], "first": uuid.Nil.String(), "last": uuid.Max.String(), "shown": 1000, "limit": int64(page)}, reads: 3 * page},
		{name: "search_correlation", given: searched, reads: 4 * page},
		{name: "search_correlation in lists", given: searched, reads: 4 * page},
		{name: "overview", given: args{"limit": int64(page)}, reads: 5 * (planShards + 6) * page},
		{name: "beside", given: args{"stream": "none", "id": 0, "limit": int64(page)}, reads: 5 * page},
		{name: "backlog_of", given: without, reads: 6 * planShards * page},
		{name: "backlog_of", reads: 6 * planShards * (page + window)},
		{name: "brokers", given: args{"after": "", "before": "\U0010FFFF"}, reads: 5},
		{name: "next_broker", given: args{"after": "", "before": "\U0010FFFF"}, reads: 5},
		{name: "open_brokers", reads: 5},
		{name: "finished_brokers", reads: 5},
		{name: "key_blocks", reads: 5 * planShards * 2 * 10_000},
		{name: "failed_keys", reads: 4 * 10_000},
		{name: "followers_of", given: args{"key": sqladmin.Text("key of trouble 1"), "id": ids.troubles[0], "max_count": int64(page)}, reads: 17 * page},
		{name: "deferred_followers", given: args{"blockers": sqladmin.List{Items: blockers}, "max_count": int64(9)}, reads: 25 * n},
		{name: "errors_of", given: picked, reads: 3 * n},
		{name: "entries", given: args{"limit": int64(page)}, reads: 3 * planShards * 2 * page},
		{name: "stranded", given: args{"heads": true, "after_id": int64(-1) << 60, "limit": int64(page)}, reads: 3*planShards*planPage + 12*page},
		{name: "expired_published", given: args{"retention": time.Minute, "limit": int64(page)}, reads: 2 * page},
		{name: "expired_abandoned", given: args{"retention": time.Minute, "limit": int64(page)}, reads: 4 * page},
		{name: "counts", reads: 3 * s.all(), whole: true},
		{name: "last_errors", reads: 3 * s.all(), whole: true},
		{name: "blocking", given: found, reads: 3 * s.all(), whole: true},
		{name: "blocked_keys", given: args{"limit": int64(page)}, reads: 3 * s.all(), whole: true},
	}...)
}

// unplanned are the statements that TestPlans leaves out.
var unplanned = []string{
	"applied", "clock", "server_clock", "server", "uptime", "name_session", "writers", "facts", "holder", "lock_name", "migrate", "record", "release_name", "rights", "settings", "settings_global", "slots", "stay",
	"audit", "audit_begin", "audit_begun", "audit_end", "forget_instances", "heartbeat", "instances", "leave", "pause", "pauses", "resume",
}

// A plansSize is how many rows the table has.
type plansSize struct{ thousands, troubles int }

func (s plansSize) all() int  { return 1000*s.thousands + 2*s.troubles }
func (s plansSize) open() int { return 100*s.thousands + s.troubles*3/4 }

// planIDs are rows of the table.
type planIDs struct {
	large, low int     // the shards of the keys of fillKey
	open       []int64 // of one shard, claimable
	troubles   []int64
	blocks     []int64
	heads      []int64  // one of each key
	messages   []string // of troubles
}

// TestPlans: whatever is in the table, each statement reads as many rows as it has to do with, times
// a small number, and by the indexes that its comment names. InnoDB counts what it was asked for,
// exactly. Statistics are as old as they can be: the tables were empty when they were made.
func TestPlans(t *testing.T) {
	t.Parallel()
	size, dsn := plansSize{thousands: 50, troubles: 10_000}, testenv.MySQL(t)
	if testenv.Long() {
		size = plansSize{thousands: 1000, troubles: 200_000}
	}
	store := newStore(t, openDB(t, dsn), "")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	db := openDB(t, dsn)
	fill := func(text string, given ...any) {
		_, err := db.ExecContext(t.Context(), text, given...)
		require.NoError(t, err)
	}
	fill("ALTER TABLE outbox_messages STATS_AUTO_RECALC = 0")
	fill("ALTER TABLE outbox_messages_key_blocks STATS_AUTO_RECALC = 0")
	fill(fillTable, size.thousands)
	fill(fillTroubles, size.troubles/1000)
	fill(fillKey, size.troubles/1000)
	for _, text := range fillBlocks {
		fill(text)
	}

	const shard = 1
	ids := planIDs{
		open:     column[int64](t, db, "SELECT id FROM outbox_messages WHERE target_broker = 'b' AND queue = ? AND finished_at IS NULL ORDER BY id LIMIT ?", shard, planWindow),
		troubles: column[int64](t, db, "SELECT id FROM outbox_messages WHERE target_broker = 'b' ORDER BY id DESC LIMIT 1000"),
		blocks:   column[int64](t, db, "SELECT block_id FROM outbox_messages_key_blocks WHERE ordering_key IS NOT NULL ORDER BY block_id"),
	}
	require.Len(t, ids.open, planWindow)
	require.Len(t, ids.troubles, 1000)
	require.NotEmpty(t, ids.blocks)
	ids.large = int(column[int64](t, db, "SELECT MIN(shard) FROM outbox_messages WHERE target_broker = 'c' AND ordering_key = 'large'")[0])
	ids.low = int(column[int64](t, db, "SELECT MIN(shard) FROM outbox_messages WHERE target_broker = 'c' AND ordering_key = 'low'")[0])
	ids.heads = column[int64](t, db, "SELECT MIN(id) FROM outbox_messages WHERE status = 'published' AND id % 10 > 0 GROUP BY ordering_key")
	ids.messages = column[string](t, db, "SELECT LOWER(HEX(message_id)) FROM outbox_messages WHERE target_broker = 'b' ORDER BY id DESC LIMIT 1000")

	common := args{
		"broker": "b", "shard": shard, "window": planWindow, "sized": false, "busy": 0, "most": planWindow, "admits": planWindow / 2, "look": planPage, "token": []byte("0123456789abcdef"),
		"worker": "w", "lease": 60_000_000, "isolated": false, "ids": jsonList(ids.open), "first": ids.open[0], "last": ids.open[planWindow-1], "unordered": false,
		"floor": ids.open[0], "horizon": ids.open[planWindow-1], "server": "s",
	}
	for shard := range classShards {
		common[fmt.Sprint("floor_", shard)], common[fmt.Sprint("version_", shard)], common[fmt.Sprint("late_", shard)] = ids.open[0], 1, jsonList(ids.open)
	}
	common["versions"] = jsonList(make([]int64, classShards))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.ExecContext(t.Context(), "SET SESSION optimizer_switch = 'index_condition_pushdown=off'") // what it passes over is counted nowhere
	require.NoError(t, err)
	cases := plans(size, ids)
	for i := range cases {
		cases[i].check(t, conn, store, common, "statistics of empty tables")
	}
	fill("ANALYZE TABLE outbox_messages, outbox_messages_key_blocks")
	for i := range cases {
		cases[i].check(t, conn, store, common, "fresh statistics")
	}

	known := slices.Clone(unplanned)
	for i := range cases {
		if !slices.Contains(known, cases[i].name) {
			known = append(known, cases[i].name)
		}
	}
	texts, _ := store.Texts()
	assert.ElementsMatch(t, slices.Concat(slices.Collect(maps.Keys(texts)), statementNames(store)), known)
}

// lists are where ids are filled in.
var lists = regexp.MustCompile(`\{\{list(_\d+)?\}\}`)

// check runs a statement with what it is given beside what all are.
func (p *plan) check(t *testing.T, conn *sql.Conn, store *Store, common args, state string) {
	t.Helper()
	st := store.statements[p.name]
	texts, parameters := store.Texts()
	if text, ok := texts[p.name]; ok {
		st = statement{text, parameters[p.name]}
	}
	given := maps.Clone(common)
	for name, value := range p.given {
		for _, arg := range (database{}).Bind(name, value) {
			given[arg.Name] = arg.Value
		}
	}
	list := new([]int64)
	require.NoError(t, json.Unmarshal([]byte(given["ids"].(string)), list))
	st.text = lists.ReplaceAllString(st.text, withList("{{list}}", "list", *list))
	st.text = strings.Replace(st.text, "{{texts}}", withList("{{texts}}", "texts", *list), 1)
	for _, name := range st.parameters {
		require.Contains(t, given, name, p.name)
	}
	state = p.name + ", " + state
	p.checkIndexes(t, conn, st.text, st.bind(given), state)
	n := reads(t, conn, st.text, st.bind(given), p.keep)
	t.Logf("%s: reads %d, at most %d", state, n, p.reads)
	assert.LessOrEqual(t, n, p.reads, "%s: rows read", state)
}

// statementNames are those of the store's own statements; parts of statements are none.
func statementNames(s *Store) (names []string) {
	for name := range s.statements {
		if !strings.HasPrefix(name, "part_") {
			names = append(names, name)
		}
	}
	return names
}

// checkIndexes compares the indexes that a statement uses with those that its comment names. What is
// read from end to end is made by the statement itself, or small.
func (p *plan) checkIndexes(t *testing.T, conn *sql.Conn, text string, bound []any, state string) {
	t.Helper()
	text = strings.TrimPrefix(text, sqladmin.GivingWay+" ") // which EXPLAIN does not understand
	if strings.HasPrefix(text, "INSERT") {                  // MySQL explains only what is selected
		text = text[max(0, strings.Index(text, "SELECT")):]
		text, _, _ = strings.Cut(text, "ON DUPLICATE KEY")
		if !strings.HasPrefix(text, "SELECT") {
			return
		}
	}
	comment := commentOf(t, p.name)
	rows, err := conn.QueryContext(t.Context(), "EXPLAIN /*!50700 FORMAT = TRADITIONAL */ "+text, bound...)
	require.NoError(t, err, state)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(t, rows.Scan(dest...))
		column := func(name string) string { return values[slices.Index(columns, name)].String }
		if key := column("key"); strings.HasPrefix(key, "outbox_messages_") {
			assert.Contains(t, comment, strings.Replace(key, "outbox_messages_", "{{name}}_", 1), "%s: the comment does not name the index of %s", state, column("table"))
		}
		own := column("table") == "" || strings.HasPrefix(column("table"), "<") || strings.Contains(column("Extra"), "Table function") || column("rows") == "1"
		if kind := column("type"); !p.whole && !own {
			assert.NotContains(t, []string{"ALL", "index"}, kind, "%s: %s is read from end to end, by %q", state, column("table"), column("key"))
		}
	}
	require.NoError(t, rows.Err())
}

var includes = regexp.MustCompile(`\{\{(?:include|each shard) (\w+)\}\}`)

// commentOf are the comments of a statement's file, and of the files that it includes.
func commentOf(t *testing.T, name string) string {
	t.Helper()
	name = strings.TrimSuffix(strings.TrimSuffix(name, "_unmarked"), " in lists")
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		text, err = os.ReadFile("../../internal/sqladmin/sql/mysql/" + name + ".sql")
	}
	require.NoError(t, err)
	require.NotEmpty(t, text, name)
	var comment strings.Builder
	for line := range strings.Lines(string(text)) {
		if _, words, ok := strings.Cut(line, "--"); ok {
			comment.WriteString(words)
		}
		for _, match := range includes.FindAllStringSubmatch(line, -1) {
			comment.WriteString(commentOf(t, match[1]))
		}
	}
	return comment.String()
}

// reads is how many rows a statement asks the storage engine for. What it changes is undone, unless
// that is to be kept.
func reads(t *testing.T, conn *sql.Conn, text string, bound []any, keep bool) int {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	count := func() (n int) {
		status, err := conn.QueryContext(ctx, "SHOW SESSION STATUS LIKE 'Handler_read_%'")
		require.NoError(t, err)
		defer status.Close()
		for status.Next() {
			var (
				name  string
				value int
			)
			require.NoError(t, status.Scan(&name, &value))
			n += value
		}
		require.NoError(t, status.Err())
		return n
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	before := count()
	own := count() - before // what the question itself reads
	func() {
		answer, err := tx.QueryContext(ctx, text, bound...)
		require.NoError(t, err, text)
		defer answer.Close()
		for answer.Next() {
			continue
		}
		require.NoError(t, answer.Err())
	}()
	n := count() - before - 2*own
	if keep {
		require.NoError(t, tx.Commit())
	}
	return n
}

// column reads the only column of an answer.
func column[T cmp.Ordered](t *testing.T, db *sql.DB, text string, given ...any) (values []T) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text, given...)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var value T
		require.NoError(t, rows.Scan(&value))
		values = append(values, value)
	}
	require.NoError(t, rows.Err())
	return values
}
