package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// A look reads few blocks at once, and asks for the block of a key where there are many.
func TestALookBesideManyBlocks(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	store := openStore(t, testenv.Postgres(t), "")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	exec := func(text string, args ...any) {
		t.Helper()
		_, err := store.pool.Exec(t.Context(), text, args...)
		require.NoError(t, err, text)
	}
	// Of each key a block, which is a row that went; every second one is behind all other rows.
	exec(`INSERT INTO outbox_messages_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
		SELECT 'b', shard, 'key-' || i, CASE WHEN i % 2 = 0 THEN 1000000 ELSE -1 END, gen_random_uuid(), now() + interval '1 day', 'scheduled'
		  FROM generate_series(1, 50000) AS i, LATERAL (SELECT get_byte(sha256(('key-' || i)::bytea), 0) & 3 AS shard) AS s WHERE shard = 1`)
	exec("ANALYZE outbox_messages_key_blocks")
	exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', (i % 2)::text, 'key-' || i, '' FROM generate_series(49001, 51000) AS i WHERE get_byte(sha256(('key-' || i)::bytea), 0) & 3 = 1`)
	var free, blocks int
	require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT count(*) FROM outbox_messages WHERE type = '0' OR replace(ordering_key, 'key-', '')::int > 50000").Scan(&free))
	require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT count(*) FROM outbox_messages_key_blocks").Scan(&blocks))
	require.Greater(t, blocks, 10_000)
	claim := &driver.Claim{Broker: "b", Shard: 1, Limit: 1000, Window: 1000, Lease: time.Hour, Worker: "w", Ahead: 4000}
	for _, many := range []bool{true, false} {
		if !many {
			exec("UPDATE outbox_messages SET status = 'pending', locked_until = NULL, lock_token = NULL, locked_by = NULL WHERE status = 'processing'")
			exec("DELETE FROM outbox_messages_key_blocks WHERE replace(ordering_key, 'key-', '')::int < 49000")
		}
		exchanged, err := store.Exchange(t.Context(), nil, claim)
		require.NoError(t, err)
		assert.Len(t, exchanged.Batch.Messages, free, "many blocks: %t", many)
	}
}
