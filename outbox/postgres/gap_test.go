package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox/postgres"
)

// An operator changes the head of a key by hand while claims meet the row: none takes the key from behind
// it, and afterwards it is taken from its head.
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
	claim := func() (ids []int64) {
		exchanged, err := store.Exchange(ctx, nil, &driver.Claim{Broker: "b", Shard: shard, Limit: 10, Window: 10, Lease: time.Minute, Worker: "w"})
		require.NoError(t, err)
		for _, m := range exchanged.Batch.Messages {
			ids = append(ids, m.ID)
		}
		return ids
	}
	for range 3 {
		require.Empty(t, claim())
	}
	committed := make(chan error, 1)
	go func() { committed <- tx.Commit(ctx) }()
	var ids []int64
	require.Eventually(t, func() bool {
		ids = claim()
		return len(ids) > 0
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, <-committed)
	assert.Equal(t, []int64{1, 2, 3}, ids)
}
