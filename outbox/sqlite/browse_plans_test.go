package sqlite

import (
	"context"
	"database/sql"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// What people ask for is read along indexes, in their order: nothing but a handful of rows is
// sorted, and the branches of a list are merged while they are read.
func TestBrowsePlans(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	walk := regexp.MustCompile(`SCAN (outbox_messages\w*|m|w)\b`)
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
	for name, c := range map[string]struct {
		text  string
		wants []string
	}{
		"brokers": {store.Text("brokers"), []string{"_open (target_broker>?)", "_deferred_key (target_broker>?)", "_finished (target_broker>?)"}},
		"overview": {store.Text("overview"), []string{
			"_open (target_broker=? AND shard=?)", "_deferred_key (target_broker=?)", "_failing (target_broker=?)", "COVERING INDEX outbox_messages_finished (target_broker=? AND status=?",
		}},
		"beside":      {store.Text("beside"), []string{"_open (target_broker=?)", "_deferred (target_broker=?)"}},
		"message":     {store.Text("message"), []string{"(message_id=?)"}},
		"siblings":    {store.Text("siblings"), []string{"(message_id>? AND message_id<?)"}},
		"key_blocks":  {store.Text("key_blocks"), []string{"_blocks_wake (target_broker=? AND shard=? AND wake_at=?)", "_blocks_wake (target_broker=? AND shard=? AND wake_at<?)", "m USING INTEGER PRIMARY KEY"}},
		"failed_keys": {store.Text("failed_keys"), []string{"_failing (target_broker=?)"}},
		"followers":   {store.Text("followers"), []string{"_open (target_broker=? AND shard=?)", "_deferred_key (target_broker=? AND ordering_key=? AND shard=? AND id>?)"}},
		"states": {store.Text("states"), []string{
			"_blocks_key (target_broker=? AND ordering_key=? AND shard=?)", "own USING PRIMARY KEY (block_id=?)", "b USING INTEGER PRIMARY KEY",
			"_deferred_key (target_broker=? AND ordering_key=? AND shard=? AND id<?)",
		}},
		"deferred_followers": {store.Text("deferred_followers"), []string{"_deferred_key (target_broker=? AND ordering_key=? AND shard=? AND id>?)"}},
		"entries":            {store.Text("entries"), []string{"_blocks_wake (target_broker=? AND shard=? AND wake_at=?)", "_blocks_wake (target_broker=? AND shard=? AND wake_at>? AND wake_at<?)"}},
		"stranded":           {store.Text("stranded"), []string{"_deferred (target_broker=? AND id>?)"}},
		"errors_of":          {store.Text("errors_of"), []string{"USING INTEGER PRIMARY KEY"}},
		"acknowledge":        {store.Text("acknowledge"), []string{"USING INTEGER PRIMARY KEY"}},
		"discard":            {store.Text("discard"), []string{"USING INTEGER PRIMARY KEY"}},
		"key_heads":          {store.Text("key_heads"), []string{"_open (target_broker=? AND shard=?)"}},
		"audit":              {store.Text("audit"), []string{"USING INTEGER PRIMARY KEY (rowid<?)"}},
		"audit_end":          {store.Text("audit_end"), []string{"USING INTEGER PRIMARY KEY (rowid=?)"}},
	} {
		plan := explainPlan(t, store, c.text)
		for _, want := range c.wants {
			assert.Contains(t, plan, want, name)
		}
		assert.NotRegexp(t, walk, plan, name)
	}
}

// fillBrowsed writes a thousand rows of each kind, all of one key.
func fillBrowsed(t *testing.T, store *Store) {
	t.Helper()
	for kind, row := range []struct{ columns, values string }{
		{"status", "'pending'"},
		{"status, priority", "'pending', -1"},
		{"status, deferred", "'pending', 1"},
		{"status, last_error", "'failed', '{}'"},
		{"status, finished_at, published_at", "'published', n, n"},
		{"status, finished_at", "'abandoned', n"},
	} {
		_, err := store.db.ExecContext(t.Context(), `
			WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 1000)
			INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, `+row.columns+`)
			SELECT printf('%08d-0000-0000-0000-%012d', ?, n), 'b', 's', 'T', 'k', x'7b7d', `+row.values+` FROM i`, kind)
		require.NoError(t, err)
	}
}

// However many rows there are, no more are looked at than it takes.
func TestBrowseIsBounded(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	fillBrowsed(t, store)
	const limit, more = 10, true
	full := admin.Count{N: limit, More: more}
	overview, err := store.Overview(t.Context(), limit)
	require.NoError(t, err)
	require.Len(t, overview, 1)
	assert.Equal(t, full, overview[0].Deferred)
	assert.Equal(t, map[outbox.Status]admin.Count{
		outbox.StatusPending: full, outbox.StatusProcessing: {N: 0, More: more}, outbox.StatusFailed: full, outbox.StatusPublished: full, outbox.StatusAbandoned: full,
	}, overview[0].Counts)
	assert.Equal(t, int64(2*(limit+1)+limit+1), number(t, store, "overview", sql.Named("broker", "b"), sql.Named("limit", limit), sql.Named("now", 0)),
		"pending rows in each of two shards, and among the deferred ones")
	followers := func() (waiting [2]int, cut [2]bool) {
		require.NoError(t, store.read(t.Context(), func(r *sql.Rows) error {
			var (
				place, n int
				more     bool
			)
			err := r.Scan(&place, &n, &more)
			waiting[place], cut[place] = n, more
			return err
		}, store.Text("followers"), sql.Named("broker", "b"), sql.Named("keys", `["k", "k"]`), sql.Named("ids", "[0, 0]"), sql.Named("shards", "[0, 1]"),
			sql.Named("max_count", limit)))
		return waiting, cut
	}
	waiting, cut := followers()
	assert.Equal(t, [2]int{2*1000 + limit + 1, 1000}, waiting, "at the head of the block's shard, and of its deferred rows")
	assert.Equal(t, [2]bool{}, cut)
	_, err = store.db.ExecContext(t.Context(), `
		WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 10000)
		INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT printf('99999999-0000-0000-0000-%012d', n), 'b', 's', 'T', 'k', x'' FROM i`)
	require.NoError(t, err)
	waiting, cut = followers()
	assert.Equal(t, [2]int{10_000 + limit + 1, 1000}, waiting, "no more of a shard are read")
	assert.Equal(t, [2]bool{true, false}, cut)
	_, err = store.db.ExecContext(t.Context(), "DELETE FROM outbox_messages WHERE message_id LIKE '99999999-%'")
	require.NoError(t, err)

	// What cannot be read stands behind the first three rows of each list.
	conn, err := store.db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "PRAGMA ignore_check_constraints = ON")
	require.NoError(t, err)
	for _, status := range []outbox.Status{outbox.StatusPending, outbox.StatusFailed, outbox.StatusPublished, outbox.StatusAbandoned} {
		_, err = conn.ExecContext(t.Context(), `UPDATE outbox_messages SET attempts = 'unreadable'
			 WHERE status = ?1 AND id NOT IN (SELECT id FROM outbox_messages WHERE status = ?1 ORDER BY finished_at DESC, id DESC LIMIT 3)`, string(status))
		require.NoError(t, err)
		request := admin.ListRequest{Broker: "b", Status: status, Limit: 3, Scan: 3000} // a thousand failed rows stand among the pending ones
		page, err := store.List(t.Context(), request)
		require.NoError(t, err, status)
		assert.Len(t, page.Records, 3, status)
		assert.NotZero(t, page.Next, status)
		request.Limit = 4
		_, err = store.List(t.Context(), request)
		require.ErrorContains(t, err, "attempts", "%s: and one more", status)
		request.Scan, request.Limit, request.Filter.Type = 3, 3, "another"
		page, err = store.List(t.Context(), request)
		require.NoError(t, err, status)
		assert.Equal(t, 3, page.Scanned, status)
	}
	require.NoError(t, conn.Close())
}

// number is the first column of the one row of a statement.
func number(t *testing.T, store *Store, name string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, store.read(t.Context(), func(r *sql.Rows) error {
		columns, err := r.Columns()
		require.NoError(t, err)
		dest := []any{&n}
		for range columns[1:] {
			dest = append(dest, new(any))
		}
		return r.Scan(dest...)
	}, store.Text(name), args...))
	return n
}

// What is claimed is found on the first page, however many rows wait behind it.
func TestBrowseFindsWhatIsInHand(t *testing.T) {
	t.Parallel()
	store, claim := newStore(t)
	for range 6 {
		insert(t, store)
	}
	claim.Limit = 5
	result, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, result.Batch.Messages, 5)
	fillBrowsed(t, store)
	_, err = store.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload)
		SELECT printf('%08d-0000-0000-0001-%012d', n.value, m.id), m.target_broker, 's', 'T', x'' FROM outbox_messages AS m, json_each('[1, 2, 3, 4]') AS n WHERE m.ordering_key = 'k'`)
	require.NoError(t, err)
	request := admin.ListRequest{Broker: "b", Status: outbox.StatusProcessing, Limit: 10, Scan: 5000}
	page, err := store.List(t.Context(), request)
	require.NoError(t, err)
	assert.Len(t, page.Records, 5)
	assert.Equal(t, 5, page.Scanned, "where they are is found first")
	assert.Zero(t, page.Next)
}

// A query that takes too long is cancelled, and the error says so.
func TestBrowseTakesNotForever(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	fillBrowsed(t, store)
	store.answerTime = time.Nanosecond
	for name, ask := range map[string]func() error{
		"overview": func() error { _, err := store.Overview(t.Context(), 1); return err },
		"list": func() error {
			_, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: outbox.StatusPending, Limit: 1, Scan: 1})
			return err
		},
		"message": func() error { _, err := store.Message(t.Context(), "00000000-0000-0000-0000-000000000001"); return err },
		"blocked": func() error { _, err := store.KeyBlocks(t.Context(), "b", 1, 1); return err },
		"audit":   func() error { _, err := store.Audit(t.Context(), 0, 1); return err },
	} {
		require.ErrorIs(t, ask(), errSlow, name)
	}
	store.answerTime = time.Minute
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := store.Overview(gone, 1)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, errSlow, "the caller gave it up")
}
