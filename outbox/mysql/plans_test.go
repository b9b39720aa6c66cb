package mysql

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// fillTable makes rows: nine of ten published, the rest open, of 1,000 keys; and blocks, of which a
// few are due. $1 is how many thousands.
const fillTable = `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload, status, published_at, finished_at)
	SELECT UNHEX(MD5(n)), 'b', 's', 'T', CONCAT('key-', n % 1000), '{}'
	     , IF(n % 10 > 0, 'published', 'pending'), IF(n % 10 > 0, UTC_TIMESTAMP(6), NULL), IF(n % 10 > 0, UTC_TIMESTAMP(6), NULL)
	  FROM (SELECT high.slot * 1000 + low.slot AS n
	          FROM outbox_messages_key_slots AS high CROSS JOIN outbox_messages_key_slots AS low WHERE low.slot < 1000 AND high.slot < ?) AS numbers
	 ORDER BY n`

const fillBlocks = `INSERT INTO outbox_messages_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
	SELECT 'b', shard, NULL, id, message_id, IF(id % 1000 = 0, '2020-01-01', '9999-12-31'), 'backoff'
	  FROM outbox_messages WHERE status = 'published' AND id % 10 = 0`

// TestPlans: whatever is in the table, each statement of delivery reads as many rows as it has to do
// with, times a small number. InnoDB counts what it was asked for, exactly. Statistics are as old as
// they can be: the tables were empty when they were made.
func TestPlans(t *testing.T) {
	t.Parallel()
	thousands, dsn := 50, testenv.MySQL(t)
	if testenv.Long() {
		thousands = 1000
	}
	store := newStore(t, openDB(t, dsn), "")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	db := openDB(t, dsn)
	for _, table := range []string{"outbox_messages", "outbox_messages_key_blocks"} {
		_, err = db.ExecContext(t.Context(), "ALTER TABLE "+table+" STATS_AUTO_RECALC = 0")
		require.NoError(t, err)
	}
	_, err = db.ExecContext(t.Context(), fillTable, thousands)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), fillBlocks)
	require.NoError(t, err)

	const shard, window = 1, 500
	ids := openIDs(t, db, shard, window)
	require.Len(t, ids, window)
	token := []byte("0123456789abcdef")
	published, other := make([]published, window), make([]other, window)
	for i, id := range ids {
		published[i].ID = id
		other[i].ID, other[i].Status = id, "pending"
	}
	given := args{
		"broker": "b", "shard": shard, "window": window, "ready": false, "sized": false, "busy": 0, "most": window, "token": token, "worker": "w",
		"lease": 60_000_000, "isolated": false, "ids": jsonList(ids), "first": ids[0], "last": ids[window-1], "key": "key-10", "unordered": false,
	}
	for _, c := range []struct {
		name  string
		rows  any
		reads int // for each row of the window
	}{
		{name: "window", reads: 6},
		{name: "lock_ready", reads: 3},
		{name: "waiting"}, // see below
		{name: "ready"},
		{name: "blocks", reads: 8},
		{name: "lock"},
		{name: "try_lock"},
		{name: "turn"},
		{name: "version"},
		{name: "take", reads: 3},
		{name: "fetch", reads: 4},
		{name: "renew_late", reads: 3},
		{name: "renew", reads: 4},
		{name: "mark_other", rows: other, reads: 5},
		{name: "take", reads: 3},
		{name: "mark_published", rows: published, reads: 5},
		{name: "followers", reads: 2},
		{name: "lock_waiting", reads: 4},
		{name: "first_abandoned", reads: 5},
	} {
		if c.rows != nil {
			given["rows"] = jsonList(c.rows)
		}
		st := store.statements[c.name]
		text := st.text
		if c.name == "take" {
			text = withList(text, ids)
		}
		most := c.reads*window + 100
		if c.name == "waiting" {
			most = 3 * 20_000 // which it reads, and counts in between
		}
		n := reads(t, db, text, st.bind(given))
		t.Logf("%s reads %d", c.name, n)
		assert.LessOrEqual(t, n, most, c.name)
	}
}

// reads is how many rows a statement has asked the storage engine for.
func reads(t *testing.T, db *sql.DB, text string, bound []any) int {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
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
	before := count()
	own := count() - before // what the question itself reads
	func() {
		answer, err := conn.QueryContext(ctx, text, bound...)
		require.NoError(t, err, text)
		defer answer.Close()
		for answer.Next() {
			continue
		}
		require.NoError(t, answer.Err())
	}()
	return count() - before - 2*own
}

// openIDs are the first open rows of a shard.
func openIDs(t *testing.T, db *sql.DB, shard, most int) (ids []int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id FROM outbox_messages WHERE target_broker = 'b' AND queue = ? AND finished_at IS NULL ORDER BY id LIMIT ?", shard, most)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}
