package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// What an operator makes deliverable goes out at once: the relays are told. This one would look by
// itself in an hour.
func TestOperatorsWakeRelays(t *testing.T) {
	t.Parallel()
	dsn, db, inserter := listening(t)
	store := openStore(t, dsn, "")
	ctx := t.Context()
	add := func(key string) string {
		t.Helper()
		row := outbox.Row{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T", OrderingKey: key, Payload: []byte("{}")}
		require.NoError(t, inserter.Insert(ctx, db, []outbox.Row{row}))
		return row.MessageID.String()
	}
	waits := func(ids ...string) {
		t.Helper()
		_, err := db.ExecContext(ctx, "UPDATE outbox_messages SET status = 'failed', locked_until = now() + interval '1 day' WHERE message_id = ANY ($1)", ids)
		require.NoError(t, err)
	}
	// A key that waits for an operator behind an abandoned row, one behind a row that waits for a
	// day, and a row that waits for a day alone.
	add("deferred")
	var batch driver.Batch
	for shard := range store.Shards() {
		claimed, err := store.Exchange(ctx, nil, &driver.Claim{Broker: "b", Shard: shard, Limit: 1, Window: 1, Lease: time.Minute, Worker: "w"})
		require.NoError(t, err)
		if len(claimed.Batch.Messages) > 0 {
			batch = claimed.Batch
		}
	}
	require.Len(t, batch.Messages, 1)
	add("deferred")
	_, err := store.Exchange(ctx, &driver.Completion{
		Lease: batch.Lease, BlockAbandoned: true, Other: []driver.Outcome{{ID: batch.Messages[0].ID, Status: outbox.StatusAbandoned, Spent: true, LastError: "{}"}},
	}, nil)
	require.NoError(t, err)
	head, alone := add("held"), add("")
	add("held")
	waits(head, alone)

	r := startRelay(t, store)
	r.awaitListening()
	delivered := func(n int64, what string) {
		t.Helper()
		r.await(func() bool {
			if r.published() != n { // which is counted before it is marked
				return false
			}
			var inHand int
			require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM outbox_messages WHERE status = 'processing'").Scan(&inHand))
			return inHand == 0
		}, what)
	}
	commit(t, db, inserter)
	delivered(1, "what waits for nothing")
	filter := func(id string) admin.Filter { return admin.Filter{Broker: "b", MessageIDs: []string{id}} }

	n, err := store.Requeue(ctx, filter(alone), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	delivered(2, "requeued")
	n, err = store.Replay(ctx, filter(alone), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	delivered(3, "replayed")
	n, err = store.Abandon(ctx, filter(head), "not wanted", 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	delivered(4, "what came behind an abandoned row")
	released, err := store.UnblockKey(ctx, "b", "deferred")
	require.NoError(t, err)
	require.True(t, released)
	delivered(5, "released")

	_, err = store.Pause(ctx, admin.Pause{Broker: "b"})
	require.NoError(t, err)
	require.NoError(t, store.Notify(ctx, wakeup.Text(nil)))
	r.await(func() bool { return r.engine.Stats()[0].Paused }, "paused")
	add("")
	changed, err := store.Resume(ctx, "b")
	require.NoError(t, err)
	require.True(t, changed)
	delivered(6, "resumed")
}

// Nobody is told where nothing has changed, and each broker is named once. A broker's name that no
// announcement can hold means all of them.
func TestOperatorsAnnounceChanges(t *testing.T) {
	t.Parallel()
	dsn, db, _ := listening(t)
	store := openStore(t, dsn, "")
	heard := make(chan string, 10)
	began := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- store.Listen(t.Context(), func() { close(began) }, func(text string) { heard <- text })
	}()
	t.Cleanup(func() { <-done })
	<-began
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, status, locked_until)
		SELECT gen_random_uuid(), broker, 's', 'T', '', 'failed', now() + interval '1 day' FROM unnest('{c,a b,b,c}'::text[]) AS broker`)
	require.NoError(t, err)
	requeue := func(filter admin.Filter, want int) {
		t.Helper()
		n, err := store.Requeue(t.Context(), filter, 10)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	requeue(admin.Filter{Broker: "nobody"}, 0)
	_, err = store.Resume(t.Context(), "b")
	require.NoError(t, err)
	_, err = store.UnblockKey(t.Context(), "b", "k")
	require.NoError(t, err)
	requeue(admin.Filter{Broker: "b"}, 1)
	assert.Equal(t, "1 b", <-heard, "the first that was said")
	_, err = db.ExecContext(t.Context(), "UPDATE outbox_messages SET status = 'failed', locked_until = now() + interval '1 day' WHERE target_broker <> 'a b'")
	require.NoError(t, err)
	requeue(admin.Filter{Type: "T", Statuses: []outbox.Status{outbox.StatusFailed}, Broker: "c"}, 2)
	assert.Equal(t, "1 c", <-heard)
	requeue(admin.Filter{}, 2)
	assert.Equal(t, strings.TrimSpace(wakeup.Text(nil)), <-heard)
}

// What has become of a block is what has become of its message at the block's own broker.
func TestBlocksAreOfOneBroker(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	d.exec(`INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload, status, finished_at, published_at)
		SELECT message_id, 'c', stream, type, ordering_key, payload, 'published', now(), now() FROM tide`)
	d.exec(`INSERT INTO tide_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
		SELECT 'b', shard, ordering_key, id, message_id, now() - interval '1 second', 'backoff' FROM tide WHERE target_broker = 'b'`)
	rows, err := d.store.pool.Query(t.Context(), d.store.sql.blocks, "b", d.shard, 500, 10, 500)
	require.NoError(t, err)
	defer rows.Close()
	var done []any
	for rows.Next() {
		values, err := rows.Values()
		require.NoError(t, err)
		done = append(done, values[6])
	}
	require.NoError(t, rows.Err())
	assert.Equal(t, []any{false}, done)
}
