package sqlite

import (
	"database/sql"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// planned are the statements that run while messages flow, and the indexes that each of them must
// use.
var planned = map[string][]string{
	"look": {"_open"}, "look_unordered": {"_open"}, "look_blocks": {"_blocks_key", "_blocks_wake", "m USING INTEGER PRIMARY KEY"},
	"window": {"_open", "_blocks_key (target_broker=? AND ordering_key=? AND shard=?)"}, "ahead": {"_open", "_blocks_key (target_broker=? AND ordering_key=? AND shard=? AND block_id<?)"}, "waiting": {"_open"}, "head": {"_open", "_blocks_key"}, "read_head": {"_open"}, "claim_head": {"_open"}, "claim": {"INTEGER PRIMARY KEY"},
	"followers": {"_deferred_key (target_broker=? AND ordering_key=? AND shard=?)"}, "wake_blocks": {"PRIMARY KEY (block_id=?"}, "set_deferred": {"INTEGER PRIMARY KEY"}, "drop_loners": {"PRIMARY KEY (block_id=?"},
	"blocks": {"_blocks_wake", "m USING INTEGER PRIMARY KEY"}, "rest_blocks": {"w USING PRIMARY KEY (block_id=?", "m USING INTEGER PRIMARY KEY"},
	"move_block":  {"w USING PRIMARY KEY (block_id=?", "m USING INTEGER PRIMARY KEY"},
	"drop_blocks": {"PRIMARY KEY (block_id=?"}, "defer_blocks": {"INTEGER PRIMARY KEY"},
	"block_abandoned": {"INTEGER PRIMARY KEY"}, "undefer_before": {"w USING PRIMARY KEY (block_id=?", "_deferred_key (target_broker=? AND ordering_key=? AND shard=? AND id<?)"},
	"mark_published": {"INTEGER PRIMARY KEY"}, "delete_published": {"INTEGER PRIMARY KEY"}, "mark_other": {"INTEGER PRIMARY KEY"}, "renew": {"_open"},
	"ready": {"_open", "_blocks_wake", "m USING INTEGER PRIMARY KEY"}, "purge_published": {"_finished"}, "purge_abandoned": {"_finished"}, "finished_brokers": {"_finished"}, "backlog": {"_open", "_blocks_key (target_broker=? AND ordering_key=? AND shard=?)"},
	"pick": {"INTEGER PRIMARY KEY"}, "requeue": {"INTEGER PRIMARY KEY"}, "abandon": {"INTEGER PRIMARY KEY"},
	"blocks_of":     {"PRIMARY KEY (block_id=?", "INTEGER PRIMARY KEY", "_blocks_key (target_broker=? AND ordering_key=?)"},
	"blocks_of_key": {"_blocks_key (target_broker=? AND ordering_key=?)"}, "forget_blocks": {"PRIMARY KEY (block_id=? AND shard=?)"},
	"move_blocks": {"PRIMARY KEY (block_id=? AND shard=?)", "INTEGER PRIMARY KEY"},
	"beside":      {"_open (target_broker=?)", "_deferred (target_broker=?)"}, "message": {"(message_id=?)"}, "siblings": {"(message_id>? AND message_id<?)"},
	"failed_keys": {"_failing (target_broker=?)"}, "stranded": {"_deferred (target_broker=? AND id>?)"}, "key_heads": {"_open (target_broker=? AND shard=?)"},
	"errors_of": {"USING INTEGER PRIMARY KEY"}, "acknowledge": {"USING INTEGER PRIMARY KEY"}, "discard": {"USING INTEGER PRIMARY KEY"},
	"audit": {"USING INTEGER PRIMARY KEY (rowid<?)"}, "audit_end": {"USING INTEGER PRIMARY KEY (rowid=?)"},
	"brokers": {"_open (target_broker>?)", "_scheduled_ids (target_broker>?)", "_deferred_key (target_broker>?)", "_finished (target_broker>?)"},
	"overview": {
		"_open (target_broker=? AND shard=?)", "_deferred_key (target_broker=?)", "_scheduled_ids (target_broker=?)", "_failing (target_broker=?)", "COVERING INDEX outbox_messages_finished (target_broker=? AND status=?",
	},
	"key_blocks": {
		"_blocks_wake (target_broker=? AND shard=? AND wake_at=?)", "_blocks_wake (target_broker=? AND shard=? AND wake_at<?)", "m USING INTEGER PRIMARY KEY",
	},
	"entries":            {"_blocks_wake (target_broker=? AND shard=? AND wake_at=?)"},
	"deferred_followers": {"_deferred_key (target_broker=? AND ordering_key=? AND shard=? AND id>?)"},
	"states": {
		"_blocks_key (target_broker=? AND ordering_key=? AND shard=?)", "own USING PRIMARY KEY (block_id=?)", "b USING INTEGER PRIMARY KEY",
		"_deferred_key (target_broker=? AND ordering_key=? AND shard=? AND id<?)",
	},
}

// walk is what a plan says of a statement that reads a table or an index from its beginning.
var walk = regexp.MustCompile(`SCAN (outbox_messages\w*|m|w)\b`)

// TestPlans keeps the planner on the indexes, without statistics, as SQLite mostly runs. No
// statement walks a table or an index from its beginning, whatever there is.
func TestPlans(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	for name, indexes := range planned {
		plan := explainPlan(t, store, textOf(store, name))
		for _, index := range indexes {
			assert.Contains(t, plan, index, name)
		}
		assert.NotRegexp(t, walk, plan, name)
	}
	for name, c := range map[string]struct {
		text    string
		indexes []string
	}{
		"a broker": {"find", []string{
			"_open (target_broker=?", "_deferred_key (target_broker=?", "_finished (target_broker=? AND status=?",
		}},
		"every broker": {"find_everywhere", []string{"_open", "_deferred_key", "_finished"}},
		"message ids":  {"find_by_message", []string{"(message_id=?"}},
		"keys":         {"blocking", []string{"m USING INTEGER PRIMARY KEY"}},
		"blocks":       {"followers", []string{"_open (target_broker=? AND shard=?)", "_deferred_key (target_broker=? AND ordering_key=? AND shard=? AND id>?)"}},
	} {
		plan := explainPlan(t, store, store.Text(c.text))
		for _, index := range c.indexes {
			assert.Contains(t, plan, index, name)
		}
		assert.NotContains(t, plan, "SCAN outbox_messages\n", name)
	}
}

// A list is read along indexes, in their order: it sorts nothing, and merges its branches as it reads
// them.
func TestPlansOfLists(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	const shard, tied, finished = "_open (target_broker=? AND shard=? AND id<?)", "_finished (target_broker=? AND status=? AND finished_at=? AND rowid<?)",
		"_finished (target_broker=? AND status=? AND finished_at<?)"
	for _, c := range []struct {
		list  string
		wants []string
	}{
		{"pending", []string{shard, "_deferred (target_broker=? AND id<?)"}},
		{"processing", []string{shard}},
		{"failed", []string{"_failing (target_broker=? AND id<?)"}},
		{"published", []string{tied, finished}},
		{"abandoned", []string{tied, finished}},
	} {
		plan := explainPlan(t, store, store.Text("list_"+c.list))
		for _, want := range c.wants {
			assert.Contains(t, plan, want, c.list)
		}
		assert.NotRegexp(t, walk, plan, c.list)
		assert.NotContains(t, plan, "TEMP B-TREE", c.list)
	}
	// A search is one pass through the entries of the index of searches, and reads no row but those that it finds.
	for _, by := range admin.FindBys()[1:] {
		for _, suffix := range []string{"", " in lists"} {
			plan := explainPlan(t, store, store.Text("search_"+string(by)+suffix))
			entries, rows := "SCAN s USING COVERING INDEX outbox_messages_search", "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"
			if by == admin.ByCorrelation {
				entries, rows = "", "SEARCH m USING INDEX outbox_messages_search (correlation_id=?"
			}
			assert.Contains(t, plan, entries, "%s%s", by, suffix)
			assert.Contains(t, plan, rows, "%s%s", by, suffix)
			assert.NotContains(t, plan, "SCAN m", "%s%s", by, suffix)
		}
	}
}

// textOf is a statement of the store or else of the administration.
func textOf(store *Store, name string) string {
	if _, err := sqlFiles.Open("sql/" + name + ".sql"); err == nil {
		return readSQL(name, store.table)
	}
	return store.Text(name)
}

func explainPlan(t *testing.T, store *Store, text string) (plan string) {
	t.Helper()
	var args []any
	seen := map[string]bool{}
	for _, found := range regexp.MustCompile(`[:@][a-z_]+`).FindAllString(text, -1) {
		if !seen[found] {
			seen[found] = true
			args = append(args, sql.Named(found[1:], "[]"))
		}
	}
	require.NoError(t, store.read(t.Context(), func(rows *sql.Rows) error {
		var a, b, c int
		var detail string
		err := rows.Scan(&a, &b, &c, &detail)
		plan += detail + "\n"
		return err
	}, "EXPLAIN QUERY PLAN "+text, args...), text)
	return plan
}

func published(batch driver.Batch) *driver.Completion {
	completion := &driver.Completion{Lease: batch.Lease}
	for i := range batch.Messages {
		completion.Published = append(completion.Published, driver.Delivered{ID: batch.Messages[i].ID})
	}
	return completion
}

// TestIdleBlocksTakeNoLock: keys that wait leave the writers alone until something is due.
func TestIdleBlocksTakeNoLock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store, claim := newStore(t, WithClock(func() time.Time { return now }))
	insert(t, store)
	insert(t, store)
	claim.Limit, claim.Wake = 1, true
	result, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, result.Batch.Messages, 1)
	completion := &driver.Completion{Lease: result.Batch.Lease, Other: []driver.Outcome{
		{ID: result.Batch.Messages[0].ID, Status: outbox.StatusFailed, Spent: true, Delay: time.Hour},
	}}
	_, err = store.Exchange(t.Context(), completion, nil)
	require.NoError(t, err)
	deferred, err := store.Defer(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, 2, deferred)

	release := lock(t, store)
	for range 2 {
		for _, unordered := range []bool{false, true} {
			claim.Unordered = unordered
			result, err = store.Exchange(t.Context(), nil, claim)
			require.NoError(t, err)
			assert.Empty(t, result.Batch.Messages)
			assert.True(t, result.Batch.Blocked, "a worker that starts now must learn of it")
		}
		claim.Wake = false // and later, when the block is due
		now = now.Add(2 * time.Hour)
	}
	ready, err := store.Ready(t.Context(), "b", 0)
	require.NoError(t, err)
	assert.Equal(t, []int{0}, ready.Shards)
	release()
	claim.Wake, claim.Unordered = true, false
	result, err = store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	assert.Len(t, result.Batch.Messages, 1)
}
