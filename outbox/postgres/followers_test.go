package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// Thousands of rows, or a million, wait behind one that failed, and vacuum never comes. Once
// they are out of the way, a claim of another key in the same shard reads its own rows and no more,
// dead entries of the index included.
func TestMillionFollowers(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	const batch = 500
	followers := 12_000 // whole windows of Defer: the low-water mark lags by what is left of one
	if testenv.Long() {
		followers = 1_000_000
	}
	store := openStore(t, testenv.Postgres(t), "followers")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	exec := func(text string, args ...any) {
		t.Helper()
		_, err := store.pool.Exec(t.Context(), text, args...)
		require.NoError(t, err, text)
	}
	exec("ALTER TABLE followers SET UNLOGGED")
	exec("ALTER TABLE followers SET (autovacuum_enabled = false)")
	exec(`INSERT INTO followers (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT lpad(to_hex(i), 32, '0')::uuid, 'b', 's', 't', 'head', '' FROM generate_series(0, $1::int) AS i`, followers)
	claim := &driver.Claim{Broker: "b", Limit: 1, Window: batch, Lease: time.Hour, Worker: "w", Wake: true}
	require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT shard FROM followers LIMIT 1").Scan(&claim.Shard))
	exchanged, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	require.Len(t, exchanged.Batch.Messages, 1)
	_, err = store.Exchange(t.Context(), &driver.Completion{Lease: exchanged.Batch.Lease, Other: []driver.Outcome{
		{ID: exchanged.Batch.Lease.FirstID, Status: outbox.StatusFailed, Spent: true, Delay: time.Hour},
	}}, nil)
	require.NoError(t, err)

	claim.Limit = batch
	deferred := 0
	for idle := 0; idle < 2; { // as a worker does that finds nothing but waiting rows
		exchanged, err := store.Exchange(t.Context(), nil, claim)
		require.NoError(t, err)
		require.Empty(t, exchanged.Batch.Messages)
		n, err := store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: claim.Shard, Window: 4000})
		require.NoError(t, err)
		if n == 0 && exchanged.Batch.Seen == 0 {
			idle++
		}
		deferred += n
	}
	require.Equal(t, followers+1, deferred)

	// Rows of other keys, in the same shard.
	exec(`INSERT INTO followers (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', 't', 'other-' || i, convert_to(repeat('x', 500), 'UTF8') FROM generate_series(1, 20000) AS i
		 WHERE get_byte(sha256(('other-' || i)::bytea), 0) & 3 = $1 LIMIT 2 * $2`, claim.Shard, batch)
	tx, err := store.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	baseline := store.water.take("b", claim.Shard, time.Now())
	_, err = tx.Exec(t.Context(), "SET LOCAL fanout.session = 7")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), store.sql.tryLock, shardLock("b", claim.Shard))
	require.NoError(t, err)
	counted := func() (n [3]int) { // what this session has done and not reported yet
		t.Helper()
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_updated('followers'::regclass)
			, pg_stat_get_xact_tuples_returned('followers_open'::regclass), pg_stat_get_xact_blocks_fetched('followers_open'::regclass)`).
			Scan(&n[0], &n[1], &n[2]))
		return n
	}
	before := counted()
	_, err = tx.Exec(t.Context(), store.sql.claim, "b", claim.Shard, batch, "w", pgUUID([16]byte{1}), int64(1e6),
		baseline.floor, baseline.version, true, 16<<20, false, []int64{7}, []int64{}, 0)
	require.NoError(t, err)
	after := counted()
	assert.Equal(t, batch, after[0]-before[0], "rows claimed")
	assert.LessOrEqual(t, after[1]-before[1], 2*batch, "entries of the index that were read")
	assert.LessOrEqual(t, after[2]-before[2], 100, "pages of the index that were read")
	t.Logf("entries of the index read: %d, pages: %d", after[1]-before[1], after[2]-before[2])
}

// Followers come back a chunk at a time while an old transaction keeps every dead entry in the
// indexes. The last chunks cost what the first do: neither the search for followers nor the claim
// goes through all that was let through before.
func TestFollowersComeBackWithoutVacuum(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	const followers, batch = 10_000, 500
	store := openStore(t, testenv.Postgres(t), "waiters")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	store.water.every = 1
	exec := func(text string, args ...any) {
		t.Helper()
		_, err := store.pool.Exec(t.Context(), text, args...)
		require.NoError(t, err, text)
	}
	exec("ALTER TABLE waiters SET (autovacuum_enabled = false)")
	exec(`INSERT INTO waiters (message_id, target_broker, stream, type, ordering_key, payload, locked_until)
		SELECT lpad(to_hex(i), 32, '0')::uuid, 'b', 's', 't', 'head', '', CASE WHEN i = 0 THEN now() + interval '1 hour' END
		  FROM generate_series(0, $1::int) AS i`, followers)
	claim := &driver.Claim{Broker: "b", Limit: batch, Window: batch, Lease: time.Hour, Worker: "w", Wake: true}
	require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT shard FROM waiters LIMIT 1").Scan(&claim.Shard))
	for deferred := 0; deferred <= followers; {
		n, err := store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: claim.Shard, Window: 4000})
		require.NoError(t, err)
		require.Positive(t, n)
		deferred += n
	}
	old, err := store.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer old.Rollback(t.Context())
	_, err = old.Exec(t.Context(), "SELECT count(*) FROM waiters_shards")
	require.NoError(t, err)
	exec("UPDATE waiters SET locked_until = NULL WHERE locked_until IS NOT NULL")
	exec("UPDATE waiters_key_blocks SET wake_at = now()")

	// read is how many entries of the two indexes the next claim goes through.
	read := func(completion *driver.Completion) (deferred, open int) {
		t.Helper()
		_, err := store.Exchange(t.Context(), completion, nil)
		require.NoError(t, err)
		tx, err := store.pool.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback(t.Context())
		store.water.mu.Lock()
		line := store.water.line("b", claim.Shard)
		floor, version := line.class[outbox.ClassNormal].floor, line.version
		store.water.mu.Unlock()
		counted := func() (deferred, open int) { // what this session has done and not reported yet
			t.Helper()
			require.NoError(t, tx.QueryRow(t.Context(),
				"SELECT pg_stat_get_xact_tuples_returned('waiters_deferred'::regclass), pg_stat_get_xact_tuples_returned('waiters_open'::regclass)").Scan(&deferred, &open))
			return deferred, open
		}
		deferredBefore, openBefore := counted()
		_, err = tx.Exec(t.Context(), "SET LOCAL fanout.session = 7")
		require.NoError(t, err)
		for _, statement := range []struct {
			text string
			args []any
		}{
			{store.sql.tryLock, []any{shardLock("b", claim.Shard)}},
			{store.sql.blocks, []any{"b", claim.Shard, driver.MaxBlocks, driver.MaxDone, driver.MaxFollowers, batch / 2}},
			{store.sql.claim, []any{"b", claim.Shard, batch, "w", pgUUID([16]byte{1}), int64(1e6), floor, version, true, 16 << 20, false, []int64{7}, []int64{}, 0}},
		} {
			_, err := tx.Exec(t.Context(), statement.text, statement.args...)
			require.NoError(t, err)
		}
		deferred, open = counted()
		return deferred - deferredBefore, open - openBefore
	}

	var completion *driver.Completion
	for delivered := 0; delivered <= followers-4*batch; {
		exchanged, err := store.Exchange(t.Context(), completion, claim)
		require.NoError(t, err)
		require.NotEmpty(t, exchanged.Batch.Messages)
		completion = &driver.Completion{Lease: exchanged.Batch.Lease}
		for _, m := range exchanged.Batch.Messages {
			require.Equal(t, int64(delivered+1), m.ID, "in order")
			completion.Published = append(completion.Published, driver.Delivered{ID: m.ID})
			delivered++
		}
	}
	deferred, open := read(completion)
	t.Logf("entries read: %d of what is deferred, %d of what is open", deferred, open)
	assert.LessOrEqual(t, deferred, 3*batch)
	assert.LessOrEqual(t, open, 12*batch)
}
