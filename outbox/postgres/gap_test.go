package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

// An operator changes the head of a key by hand while a claim waits for the row: the claim is made
// anew, and takes the key from its head, not from behind it.
func TestClaimKeepsThePrefixOfAKeyThatIsChangedByHand(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := testenv.Postgres(t)
	store, err := postgres.Open(ctx, dsn, "")
	require.NoError(t, err)
	defer store.Close()
	_, err = store.Migrate(ctx)
	require.NoError(t, err)
	pool, err := pgxpool.New(ctx, dsn)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', 'T', 'k', '' FROM generate_series(1, 3)`)
	require.NoError(t, err)
	var shard int
	require.NoError(t, pool.QueryRow(ctx, "SELECT min(shard) FROM outbox_messages").Scan(&shard))

	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	_, err = tx.Exec(ctx, "UPDATE outbox_messages SET priority = 7 WHERE id = 1")
	require.NoError(t, err)
	claimed := make(chan driver.Exchanged, 1)
	go func() {
		exchanged, err := store.Exchange(ctx, nil, &driver.Claim{Broker: "b", Shard: shard, Limit: 10, Window: 10, Lease: time.Minute, Worker: "w"})
		assert.NoError(t, err)
		claimed <- exchanged
	}()
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting))
		return waiting > 0
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, tx.Commit(ctx))

	var ids []int64
	for _, m := range (<-claimed).Batch.Messages {
		ids = append(ids, m.ID)
	}
	assert.Equal(t, []int64{1, 2, 3}, ids)
}
