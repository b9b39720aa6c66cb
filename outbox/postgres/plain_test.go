package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// plainWindow is what a claim reports.
type plainWindow struct {
	Busy                  bool
	Seen                  int
	Cut                   bool
	Waiting               int
	Blocked, AheadWaits   bool
	First                 *int64
	Last, Reopened, Own   int64
	Lowest                *int64
	Plain                 bool
	FirstTaken, LastTaken string
	IDs                   []int64 // that were taken
	Isolated              bool    // one of them
}

// TestPlainClaims: the small statement takes what the large one takes, or nothing; and both agree on when.
func TestPlainClaims(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, "plain").Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	plain, not := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		exec(t, conn, "BEGIN")
		defer exec(t, conn, "ROLLBACK")
		exec(t, conn, readSQL("try_lock", "plain"), 1)
		shard := rapid.SampledFrom([]int{1, 9}).Draw(rt, "shard")
		for range rapid.IntRange(0, 8).Draw(rt, "rows") {
			exec(t, conn, plainRow(rt, shard))
		}
		if rapid.IntRange(0, 9).Draw(rt, "block") == 0 {
			exec(t, conn, "INSERT INTO plain_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, reason) VALUES ('b', 1, 'a', 0, gen_random_uuid(), 'backoff')")
		}
		limit := rapid.SampledFrom([]int{3, 8}).Draw(rt, "limit")
		bytes, shared := rapid.SampledFrom([]int{25, 1000}).Draw(rt, "bytes"), rapid.Bool().Draw(rt, "shared")
		token, lease := pgUUID(uuid.New()), int64(60e6)
		small := claimed(t, conn, "claim_plain", token.Bytes, "b", shard, limit, "w", token, lease, noFloor, noFloor, 0, shared, bytes)
		large := claimed(t, conn, "claim_ordered", token.Bytes, "b", shard, limit, limit, "w", token, lease, noFloor, noFloor, 0, shared, bytes)
		require.Equal(rt, large.Plain, small.Plain)
		if small.Plain {
			require.Equal(rt, large, small)
			plain++
			return
		}
		not++
		require.Empty(rt, small.IDs)
	})
	assert.Positive(t, plain)
	assert.Positive(t, not)
}

// plainRow writes a row that a plain window may have, or, one time in many, another one.
func plainRow(rt *rapid.T, shard int) string {
	odd := func(name, usual string, others ...string) string {
		if rapid.IntRange(0, 25).Draw(rt, name) > 0 {
			return usual
		}
		return rapid.SampledFrom(others).Draw(rt, name)
	}
	// The hash sends these keys to shard 1, and none of them to another one; without a key the message's id does.
	key, priority := "'"+rapid.SampledFrom(keysOfShard(1)).Draw(rt, "key")+"'", odd("priority", "0", "-1")
	if shard == 9 {
		key, priority = "NULL", "1"
	}
	status := odd("status", "'pending'", "'failed'", "'processing'")
	locked := odd("locked", "NULL", "now() + interval '1 minute'", "now() - interval '1 minute'")
	if status == "'processing'" && locked == "NULL" {
		locked = "now() - interval '1 minute'"
	}
	return fmt.Sprintf(`INSERT INTO plain (message_id, target_broker, stream, type, ordering_key, priority, payload, status, locked_until, lock_token, crashes, available_at)
		VALUES (%s, 'b', 's', 't', %s, %s, 'ten bytes.', %s, %s, CASE WHEN %s = 'processing' THEN gen_random_uuid() END, %s, %s)`,
		"'"+idOfShard(1)+"'", key, priority, status, locked, status, odd("crashes", "0", "1", "2"),
		odd("available", "NULL", "now() + interval '1 minute'", "now() - interval '1 minute'"))
}

func keysOfShard(shard int) (keys []string) {
	for n := 0; len(keys) < 3; n++ {
		if key := fmt.Sprintf("key-%d", n); outbox.Postgres.Shard(&outbox.Row{OrderingKey: key}) == shard {
			keys = append(keys, key)
		}
	}
	return keys
}

func idOfShard(shard int) string {
	for {
		if id := uuid.New(); outbox.Postgres.Shard(&outbox.Row{MessageID: id}) == shard {
			return id.String()
		}
	}
}

// claimed makes a claim, looks at what it has taken, and takes it back.
func claimed(t *testing.T, conn *pgx.Conn, text string, token [16]byte, args ...any) (w plainWindow) {
	t.Helper()
	exec(t, conn, "SAVEPOINT claim")
	var nothing any
	require.NoError(t, conn.QueryRow(t.Context(), readSQL(text, "plain"), args...).Scan(
		&w.Busy, &w.Seen, &w.Cut, &w.Waiting, &w.Blocked, &w.AheadWaits, &w.First, &w.Last, &w.Reopened, &w.Own, &w.Lowest, &w.Plain,
		&w.FirstTaken, &w.LastTaken, &nothing), text)
	rows, err := conn.Query(t.Context(), "SELECT id FROM plain WHERE lock_token = $1 AND status = 'processing' AND locked_by = 'w' ORDER BY id", pgUUID(token))
	require.NoError(t, err)
	w.IDs, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT coalesce(bool_or(isolated), false) FROM plain").Scan(&w.Isolated))
	exec(t, conn, "ROLLBACK TO claim")
	return w
}

// TestPlainGuess: a wrong guess costs one round trip, and is not made again at once.
func TestPlainGuess(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	filler := openStore(t, dsn, "guess")
	_, err := filler.Migrate(t.Context())
	require.NoError(t, err)
	var trips atomic.Int64
	store := wired(t, dsn, "guess", &trips, &stall{}, nil)
	key := keysOfShard(1)[0]
	write := func(status string) {
		_, err := filler.pool.Exec(t.Context(), `INSERT INTO guess (message_id, target_broker, stream, type, ordering_key, payload, status, locked_until, lock_token)
			SELECT gen_random_uuid(), 'b', 's', 't', $1, 'x', $2::text, CASE WHEN $2 = 'processing' THEN now() + interval '1 hour' END, CASE WHEN $2 = 'processing' THEN gen_random_uuid() END`, key, status)
		require.NoError(t, err)
	}
	window := 20
	claim := func() (rows int, spent int64) {
		t.Helper()
		trips.Store(0)
		exchanged, err := store.Exchange(t.Context(), nil, &driver.Claim{Broker: "b", Shard: 1, Limit: 10, Window: window, Lease: time.Hour, Worker: "w"})
		require.NoError(t, err)
		return len(exchanged.Batch.Messages), trips.Load()
	}
	claim() // prepares the one statement
	window = 10
	claim() // and the other one
	write("pending")
	rows, spent := claim()
	assert.Equal(t, 1, rows)
	assert.Equal(t, int64(1), spent, "plain")

	write("pending") // behind the one that was just claimed
	rows, spent = claim()
	assert.Zero(t, rows)
	assert.Equal(t, int64(2), spent, "guessed, and wrong")
	for range 3 {
		rows, spent = claim()
		assert.Zero(t, rows)
		assert.LessOrEqual(t, spent, int64(1), "not guessed again")
	}
	_, err = filler.pool.Exec(context.WithoutCancel(t.Context()), "DELETE FROM guess")
	require.NoError(t, err)
	for range plainAgain {
		_, spent = claim()
		assert.LessOrEqual(t, spent, int64(1))
	}
	assert.True(t, store.plain.likely(&driver.Claim{Broker: "b", Shard: 1, Limit: 10, Window: 10}), "it was plain so often")
}

func TestPlainShards(t *testing.T) {
	t.Parallel()
	var p plainShards
	claim := &driver.Claim{Broker: "b", Shard: 1, Limit: 10, Window: 10}
	assert.True(t, p.likely(claim), "before anything is known")
	for name, other := range map[string]driver.Claim{
		"rows come back":                 {Shard: 1, Limit: 10, Window: 10, Wake: true},
		"without order":                  {Shard: 1, Limit: 10, Window: 10, Unordered: true},
		"a window larger than the claim": {Shard: 1, Limit: 10, Window: 20},
		"low priority":                   {Shard: 5, Limit: 10, Window: 10},
	} {
		assert.False(t, p.likely(&other), name)
	}
	p.learn(claim, false)
	for range plainAgain {
		assert.False(t, p.likely(claim))
		p.learn(claim, true)
	}
	assert.True(t, p.likely(claim))
	p.learn(claim, false)
	assert.True(t, p.likely(&driver.Claim{Broker: "b", Shard: 2, Limit: 10, Window: 10}), "another shard")
	assert.True(t, p.likely(&driver.Claim{Broker: "c", Shard: 1, Limit: 10, Window: 10}), "another broker")
}
