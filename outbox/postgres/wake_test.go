package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// What an operator makes deliverable is announced to the relays, after the commit. Nothing is announced
// where nothing has changed, and each broker is named once. A broker's name that no announcement can
// hold means all brokers.
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
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload, ordering_key, status, locked_until)
		SELECT gen_random_uuid(), broker, 's', 'T', '', 'k', 'failed', now() + interval '1 day' FROM unnest('{c,a b,b,c}'::text[]) AS broker`)
	require.NoError(t, err)
	all := func(broker string) admin.Filter { return admin.Filter{Broker: broker} }
	requeue := func(broker string) (int, error) { return store.Requeue(t.Context(), all(broker), 10) }
	counted := func(changed bool, err error) (int, error) { return map[bool]int{true: 1}[changed], err }
	for _, step := range []struct {
		name string
		do   func() (int, error)
		want int    // rows that change
		says string // empty: nothing
	}{
		{"nothing to requeue", func() (int, error) { return requeue("nobody") }, 0, ""},
		{"nothing to resume", func() (int, error) { return counted(store.Resume(t.Context(), "b")) }, 0, ""},
		{"nothing to unblock", func() (int, error) { return counted(store.UnblockKey(t.Context(), "b", "k")) }, 0, ""},
		{"requeue", func() (int, error) { return requeue("b") }, 1, "1 b"},
		{"requeue two rows", func() (int, error) { return requeue("c") }, 2, "1 c"},
		{"requeue of a broker that cannot be named", func() (int, error) { return requeue("") }, 1, strings.TrimSpace(wakeup.Text(nil))},
		{"abandon", func() (int, error) { return store.Abandon(t.Context(), all("b"), "not wanted", 10) }, 1, "1 b"},
		{"pause", func() (int, error) { return counted(store.Pause(t.Context(), admin.Pause{Broker: "b"})) }, 1, ""},
		{"resume", func() (int, error) { return counted(store.Resume(t.Context(), "b")) }, 1, "1 b"},
		{"block", func() (int, error) {
			_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_messages_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
				SELECT target_broker, shard, ordering_key, id, message_id, 'infinity', 'operator' FROM outbox_messages WHERE target_broker = 'b'`)
			return 0, err
		}, 0, ""},
		{"unblock", func() (int, error) { return counted(store.UnblockKey(t.Context(), "b", "k")) }, 1, "1 b"},
		{"publish", func() (int, error) {
			_, err := db.ExecContext(t.Context(), "UPDATE outbox_messages SET status = 'published', published_at = now(), finished_at = now() WHERE target_broker = 'c'")
			return 0, err
		}, 0, ""},
		{"replay", func() (int, error) { return store.Replay(t.Context(), all("c"), 10) }, 2, "1 c"},
	} {
		n, err := step.do()
		require.NoError(t, err, step.name)
		require.Equal(t, step.want, n, step.name)
		if step.says != "" {
			assert.Equal(t, step.says, <-heard, step.name)
		}
	}
	assert.Empty(t, heard)
}

// What has become of a block is what has become of its message at the block's own broker.
func TestBlocksAreOfOneBroker(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	d.exec(`INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload, status, finished_at, published_at)
		SELECT message_id, 'c', stream, type, ordering_key, payload, 'published', now(), now() FROM tide`)
	d.exec(`INSERT INTO tide_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
		SELECT 'b', shard, ordering_key, id, message_id, now() - interval '1 second', 'backoff' FROM tide WHERE target_broker = 'b'`)
	rows, err := d.store.pool.Query(t.Context(), d.store.sql.blocks, "b", d.shard, 500, 10, 500, 50)
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
