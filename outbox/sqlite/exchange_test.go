package sqlite

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// A completion stands even when the claim in the same transaction fails, and the other way round
// nothing is claimed.
func TestExchangeFails(t *testing.T) {
	t.Parallel()
	store, claim := newStore(t)
	claim.Limit = 1
	insert(t, store)
	insert(t, store)
	first, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	trigger := func(when string) {
		_, err := store.db.ExecContext(t.Context(), `DROP TRIGGER IF EXISTS refuse; CREATE TRIGGER refuse BEFORE UPDATE ON outbox_messages
			WHEN new.status = '`+when+`' BEGIN SELECT raise(ABORT, 'refused'); END`)
		require.NoError(t, err)
	}
	status := func() (s string) {
		require.NoError(t, store.db.QueryRowContext(t.Context(), "SELECT group_concat(status) FROM outbox_messages").Scan(&s))
		return s
	}
	trigger("published")
	result, err := store.Exchange(t.Context(), published(first.Batch), claim)
	require.ErrorContains(t, err, "sqlite: complete in outbox_messages: ")
	require.ErrorContains(t, err, "refused")
	assert.Equal(t, driver.Exchanged{}, result)
	assert.Equal(t, "processing,pending", status())

	// A commit that fails leaves the outcome of both unknown.
	store.db.SetMaxOpenConns(1)
	execute := func(text string) {
		_, err := store.db.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	execute(`PRAGMA foreign_keys = ON; CREATE TABLE child (parent INTEGER REFERENCES outbox_messages (id) DEFERRABLE INITIALLY DEFERRED);
		DROP TRIGGER refuse; CREATE TRIGGER refuse AFTER UPDATE ON outbox_messages WHEN new.status = 'processing' BEGIN INSERT INTO child VALUES (-1); END`)
	result, err = store.Exchange(t.Context(), published(first.Batch), claim)
	require.ErrorContains(t, err, "sqlite: complete in outbox_messages: ")
	require.ErrorContains(t, err, "FOREIGN KEY")
	assert.Equal(t, driver.Exchanged{}, result)
	assert.Equal(t, "processing,pending", status())

	trigger("processing")
	result, err = store.Exchange(t.Context(), published(first.Batch), claim)
	require.ErrorContains(t, err, "sqlite: claim in outbox_messages: ")
	assert.Equal(t, driver.Exchanged{Completed: &driver.Completed{}}, result)
	assert.Equal(t, "published,pending", status())
}

// A backlog in which nothing is held goes the short way, and whatever can hold a row back makes the
// window be judged.
func TestHead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string // of three rows with one key
		short  bool   // whether the short way is taken
	}{
		"nothing":          {"UPDATE outbox_messages SET attempts = 1, status = 'failed', locked_until = 1 WHERE id = 2", true},
		"no rows":          {"DELETE FROM outbox_messages", true},
		"lease":            {"UPDATE outbox_messages SET status = 'processing', lock_token = 'x', locked_until = 9e16 WHERE id = 3", false},
		"lease that ended": {"UPDATE outbox_messages SET status = 'processing', lock_token = 'x', locked_until = 1 WHERE id = 1", false},
		"crash":            {"UPDATE outbox_messages SET crashes = 1 WHERE id = 2", false},
		"backoff":          {"UPDATE outbox_messages SET locked_until = 9e16 WHERE id = 2", false},
		"another class":    {"UPDATE outbox_messages SET priority = -1, locked_until = 9e16 WHERE id = 1", true},
		"block": {`INSERT INTO outbox_messages_key_blocks (block_id, block_message_id, target_broker, shard, ordering_key, reason, since)
			VALUES (1, 'x', 'b', 0, 'k', 'backoff', 0)`, false},
	} {
		for _, unordered := range []bool{false, true} {
			store, claim := newStore(t)
			for range 3 {
				insert(t, store)
			}
			_, err := store.db.ExecContext(t.Context(), c.change)
			require.NoError(t, err, name)
			rows := 0
			require.NoError(t, store.db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_messages WHERE shard = 0").Scan(&rows))
			store.sql.window = "the long way"
			claim.Unordered = unordered
			batch := emptyBatch(claim)
			conn, err := store.db.Conn(t.Context())
			require.NoError(t, err)
			err = store.claimIn(t.Context(), conn, claim, &batch)
			require.NoError(t, conn.Close())
			if !c.short {
				require.ErrorContains(t, err, `"the": syntax error`, "%s, unordered %t", name, unordered)
				continue
			}
			require.NoError(t, err, "%s, unordered %t", name, unordered)
			assert.Len(t, batch.Messages, rows, name)
			assert.Equal(t, rows, batch.Seen, name)
		}
	}
}

// What is taken is the head, however far the window reaches, and a row that comes alone is known
// for it.
func TestHeadAndWindow(t *testing.T) {
	t.Parallel()
	store, claim := newStore(t)
	for range 5 {
		insert(t, store)
	}
	store.sql.window = "the long way"
	claim.Limit, claim.Window = 2, 4
	result, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	assert.Equal(t, 4, result.Batch.Seen)
	require.Len(t, result.Batch.Messages, 2)
	assert.Equal(t, int64(1), result.Batch.Lease.FirstID)
	assert.Equal(t, int64(2), result.Batch.Lease.LastID)
	isolated := func() (n int) {
		require.NoError(t, store.db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_messages WHERE isolated").Scan(&n))
		return n
	}
	assert.Zero(t, isolated())
	for want, shared := range []bool{true, false} {
		claim.Limit, claim.Shared = 1, shared
		result, err = store.Exchange(t.Context(), published(result.Batch), claim)
		require.NoError(t, err)
		require.Len(t, result.Batch.Messages, 1)
		assert.Equal(t, want, isolated())
	}
}

// Whatever a broker calls a message can be written.
func TestDeliveredList(t *testing.T) {
	t.Parallel()
	rows := []driver.Delivered{
		{ID: 1, BrokerMessageID: "1780000000000-0"},
		{ID: 1 << 62, BrokerMessageID: ""},
		{ID: 3, BrokerMessageID: `a"b\c/ü<>` + "\n\x7f"},
		{ID: 4, BrokerMessageID: "a\x00b\xff"},
	}
	list, err := deliveredList(rows)
	require.NoError(t, err)
	var found map[int64]string
	require.NoError(t, json.Unmarshal([]byte(list), &found), list)
	assert.Equal(t, map[int64]string{1: "1780000000000-0", 1 << 62: "", 3: `a"b\c/ü<>` + "\n\x7f", 4: "a\uFFFDb\uFFFD"}, found)

	store, claim := newStore(t)
	insert(t, store)
	result, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	completion := published(result.Batch)
	completion.Published[0].BrokerMessageID = rows[2].BrokerMessageID
	result, err = store.Exchange(t.Context(), completion, nil)
	require.NoError(t, err)
	assert.Zero(t, result.Completed.Lost)
	var id string
	require.NoError(t, store.db.QueryRowContext(t.Context(), "SELECT broker_message_id FROM outbox_messages WHERE finished_at > ?", time.Time{}.Unix()).Scan(&id))
	assert.Equal(t, rows[2].BrokerMessageID, id)
}
