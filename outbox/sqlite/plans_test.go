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
}

// TestPlans keeps the planner on the indexes, without statistics, as SQLite mostly runs. No
// statement walks a table or an index from its beginning, whatever there is.
func TestPlans(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	walk := regexp.MustCompile(`SCAN (outbox_messages\w*|m|w)\b`)
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
	} {
		plan := explainPlan(t, store, store.Text(c.text))
		for _, index := range c.indexes {
			assert.Contains(t, plan, index, name)
		}
		assert.NotContains(t, plan, "SCAN outbox_messages\n", name)
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

// TestManyFollowers: what waits behind one key costs the claims of the others nothing. The window
// sees none of it, the plans above read nothing else, and what a claim brings back is bounded.
func TestManyFollowers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store, claim := newStore(t, WithClock(func() time.Time { return now }))
	const rows = 3_000 // more would change nothing of what is counted here
	fills := 0
	fill := func(key string, n, deferred int) {
		fills++
		_, err := store.db.ExecContext(t.Context(), `
			WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?)
			INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, deferred, payload)
			SELECT printf('%08d-0000-0000-0000-%012d', ?, n), 'b', 's', 'T', ?, ?, x'7b7d' FROM i`, n, fills, key, deferred)
		require.NoError(t, err)
	}
	number := func(text string) (n int) {
		require.NoError(t, store.db.QueryRowContext(t.Context(), text).Scan(&n), text)
		return n
	}
	exchange := func(completion *driver.Completion) driver.Batch {
		result, err := store.Exchange(t.Context(), completion, claim)
		require.NoError(t, err)
		return result.Batch
	}
	claim.Wake = true
	fill("slow", 1, 0)
	claim.Limit = 1
	batch := exchange(nil)
	require.Len(t, batch.Messages, 1)
	_, err := store.Exchange(t.Context(), &driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{
		{ID: batch.Messages[0].ID, Status: outbox.StatusFailed, Spent: true, Delay: time.Hour},
	}}, nil)
	require.NoError(t, err)
	deferred, err := store.Defer(t.Context(), &driver.Claim{Broker: "b", Window: 100})
	require.NoError(t, err)
	require.Equal(t, 1, deferred)
	fill("slow", rows, 1)

	fill("quick", 10, 0)
	claim.Limit, claim.Window = 100, 200
	batch = exchange(nil)
	require.Len(t, batch.Messages, 10)
	assert.Equal(t, 10, batch.Seen, "no row of the other key is in sight")
	now = now.Add(2 * time.Hour) // the block is due, and the lease is over
	open := func() int {
		return number("SELECT count(*) FROM outbox_messages INDEXED BY outbox_messages_open WHERE finished_at IS NULL AND deferred = 0")
	}
	for range 14 { // some more than it takes to deliver what the first two blocks let through
		rest := open() - len(batch.Messages)
		batch = exchange(published(batch))
		require.NotEmpty(t, batch.Messages)
		assert.LessOrEqual(t, batch.Seen, claim.Window)
		assert.LessOrEqual(t, open()-rest, driver.MaxFollowers, "they come back by and by")
	}
	assert.Equal(t, rows-3*driver.MaxFollowers, number("SELECT count(*) FROM outbox_messages WHERE deferred"))
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
