package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const insertOfKey = `INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload)
	SELECT gen_random_uuid(), 'b', 's', 't', key, '' FROM (SELECT $1 || '-' || i AS key FROM generate_series(0, 100) AS i) AS keys
	 WHERE get_byte(sha256(key::bytea), 0) & 3 = $2 LIMIT 1 RETURNING id`

// A transaction stays open while hundreds of others commit, claims go on, and the mark below which
// claims do not look rises as far as it may. Its row is not skipped, and the next writer of its
// aggregate, who waits for the lock of the aggregate's row, comes after it.
func TestFault21TransactionThatIsOpenForLong(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	d.exec("CREATE TABLE orders (id int PRIMARY KEY, version int)")
	d.exec("INSERT INTO orders VALUES (1, 0)")
	require.Len(t, d.deliver(false), 1)
	d.rise(false, true)

	// write saves the order, and then its event, as the plugin does.
	write := func(tx pgx.Tx) (id int64, err error) {
		if _, err = tx.Exec(t.Context(), "UPDATE orders SET version = version + 1 WHERE id = 1"); err != nil {
			return 0, err
		}
		err = tx.QueryRow(t.Context(), insertOfKey, "order", d.shard).Scan(&id)
		return id, err
	}
	long, err := d.store.pool.Begin(t.Context())
	require.NoError(t, err)
	defer long.Rollback(t.Context())
	early, err := write(long)
	require.NoError(t, err)

	type written struct {
		id  int64
		err error
	}
	second := make(chan written, 1)
	next, err := d.store.pool.Begin(t.Context())
	require.NoError(t, err)
	go func() { // waits for the lock of the order
		id, err := write(next)
		if err == nil {
			err = next.Commit(t.Context())
		}
		second <- written{id, err}
	}()

	others := map[int64]bool{}
	for range 200 { // transactions that are shorter
		var id int64
		require.NoError(t, d.store.pool.QueryRow(t.Context(), insertOfKey, "other", d.shard).Scan(&id))
		for _, id := range d.deliver(false) {
			others[id] = true
		}
		require.True(t, others[id], "nobody waits for the long transaction")
		require.NotContains(t, others, early)
	}
	require.LessOrEqual(t, d.floor(), early, "claims still look for what may come")
	require.NoError(t, long.Commit(t.Context()))
	after := <-second
	require.NoError(t, after.err)
	assert.Greater(t, after.id, early)
	assert.Equal(t, []int64{early, after.id}, append(d.deliver(false), d.deliver(false)...), "both, in the order of their commits")
}
