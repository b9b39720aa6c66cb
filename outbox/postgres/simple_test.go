package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/internal/core"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// TestSimpleHead: claim.sql takes at once what a decision about the window would take, and takes nothing
// where the decision would have to look at rows one by one: since one of the rows is odd, or its key
// has a block.
func TestSimpleHead(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, "simple_head").Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for _, odd := range []string{"", "block", "priority", "status", "locked", "crashes", "available"} {
		simple := 0
		rapid.Check(t, func(rt *rapid.T) {
			exec(t, conn, "BEGIN")
			defer exec(t, conn, "ROLLBACK")
			exec(t, conn, readSQL("try_lock", "simple_head"), 1)
			shard := rapid.SampledFrom([]int{1, 9}).Draw(rt, "shard")
			rows := rapid.IntRange(1, 8).Draw(rt, "rows")
			for row, oddRow := 0, rapid.IntRange(0, rows-1).Draw(rt, "odd row"); row < rows; row++ {
				if row == oddRow {
					exec(t, conn, simpleRow(rt, shard, odd))
				} else {
					exec(t, conn, simpleRow(rt, shard, ""))
				}
			}
			if odd == "block" {
				exec(t, conn, "INSERT INTO simple_head_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, reason) VALUES ('b', 1, $1, $2, gen_random_uuid(), 'backoff')",
					rapid.SampledFrom(append(keysOfShard(1), "another")).Draw(rt, "blocked key"), rapid.SampledFrom([]int64{0, 1 << 40}).Draw(rt, "block's id"))
			}
			limit := rapid.SampledFrom([]int{3, 8}).Draw(rt, "limit")
			bytes, shared := rapid.SampledFrom([]int{25, 1000}).Draw(rt, "bytes"), rapid.Bool().Draw(rt, "shared")
			answer, err := conn.Query(t.Context(), readSQL("window", "simple_head"), "b", shard, limit, false, noFloor, 0, []int64{}, []int64{}, 0)
			require.NoError(t, err)
			window, _, err := collectWindow(answer, &driver.Claim{Window: limit})
			require.NoError(t, err)
			limits := core.Limits{Rows: limit, Bytes: int64(bytes)}
			wasSimple, taken := claimHead(t, conn, shard, limit, shared, bytes)
			require.Equal(rt, core.Simple(&window, limits), wasSimple, "odd: %s", odd)
			if !wasSimple {
				require.Empty(rt, taken)
				return
			}
			require.Equal(rt, driver.IDs(core.Claim(&window, limits).Take), append([]int64{}, taken...))
			simple++
		})
		if odd == "" {
			assert.Positive(t, simple)
		}
	}
}

// claimHead claims the head of a shard as it stands, and looks at what was taken.
func claimHead(t *testing.T, conn *pgx.Conn, shard, limit int, shared bool, bytes int) (simple bool, ids []int64) {
	t.Helper()
	token, seen := pgUUID(uuid.New()), 0
	require.NoError(t, conn.QueryRow(t.Context(), readSQL("claim", "simple_head"), "b", shard, limit, "w", token, int64(60e6), noFloor, 0, shared, bytes, false, []int64{}, []int64{}, 0).
		Scan(append([]any{nil, &seen, &simple}, make([]any, headColumns-3+messageColumns)...)...))
	rows, err := conn.Query(t.Context(), "SELECT id, isolated FROM simple_head WHERE lock_token = $1 AND status = 'processing' AND locked_by = 'w' ORDER BY id", token)
	require.NoError(t, err)
	var (
		id       int64
		isolated bool
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &isolated}, func() error {
		ids = append(ids, id)
		assert.Equal(t, !shared && seen == 1, isolated)
		return nil
	})
	require.NoError(t, err)
	return simple, ids
}

// simpleRow writes a row that a simple window may have, but for the column that is odd.
func simpleRow(rt *rapid.T, shard int, oddColumn string) string {
	odd := func(name, usual string, others ...string) string {
		if name != oddColumn {
			return usual
		}
		return rapid.SampledFrom(others).Draw(rt, name)
	}
	// The hash sends these keys to shard 1, and none of them to another one; without a key the
	// message's id does.
	key, priority := "'"+rapid.SampledFrom(keysOfShard(1)).Draw(rt, "key")+"'", odd("priority", "0", "-1")
	if shard == 9 {
		key, priority = "NULL", "1"
	}
	status := odd("status", "'pending'", "'failed'", "'processing'")
	locked := odd("locked", "NULL", "now() + interval '1 minute'", "now() - interval '1 minute'")
	if status == "'processing'" && locked == "NULL" {
		locked = "now() - interval '1 minute'"
	}
	return fmt.Sprintf(`INSERT INTO simple_head (message_id, target_broker, stream, type, ordering_key, priority, payload, status, locked_until, lock_token, crashes)
		VALUES (%s, 'b', 's', 't', %s, %s, 'ten bytes.', %s, %s, CASE WHEN %s = 'processing' THEN gen_random_uuid() END, %s)`,
		"'"+idOfShard(1)+"'", key, priority, status, locked, status, odd("crashes", "0", "1", "2"))
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

// TestSimpleGuess: a wrong guess costs one round trip, and is not made again at once.
func TestSimpleGuess(t *testing.T) {
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
	assert.Equal(t, int64(1), spent, "simple")

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
	for range simpleAgain {
		_, spent = claim()
		assert.LessOrEqual(t, spent, int64(1))
	}
	again, _ := store.simple.guess(&driver.Claim{Broker: "b", Shard: 1, Limit: 10, Window: 10})
	assert.True(t, again, "it was simple so often")
}

// TestFewRows: a claim returns the same messages, whether they come with its answer or are read
// after it, and few of them cost no statement of their own.
func TestFewRows(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		dsn := testenv.Postgres(t)
		var (
			trips atomic.Int64
			log   tracer
		)
		store := wired(t, with(t, dsn, "default_query_exec_mode", mode), "few", &trips, &stall{}, &log)
		_, err := store.Migrate(t.Context())
		require.NoError(t, err)
		rapid.Check(t, func(rt *rapid.T) {
			n, size := rapid.SampledFrom([]int{0, 1, 2, fewRows, fewRows + 1, 40}).Draw(rt, "rows"), rapid.SampledFrom([]int{0, 1, 500, fewBytes/fewRows + 1, fewBytes + 1}).Draw(rt, "bytes")
			_, err := store.pool.Exec(t.Context(), "DELETE FROM few")
			require.NoError(rt, err)
			_, err = store.pool.Exec(t.Context(), `INSERT INTO few (message_id, target_broker, stream, type, ordering_key, headers, correlation_id, payload)
				SELECT gen_random_uuid(), 'b', 's' || i % 3, 't', $2, CASE WHEN i % 2 = 0 THEN '{"a":"b"}' END, CASE WHEN i % 3 = 0 THEN 'c' END
				     , convert_to(repeat(chr(97 + i % 26), $3::int), 'UTF8') FROM generate_series(1, $1::int) AS i`, n, keysOfShard(2)[0], size)
			require.NoError(rt, err)
			claim := &driver.Claim{Broker: "b", Shard: 2, Limit: 50, Window: 50, Lease: time.Hour, Worker: "w"}
			expected := rapid.Bool().Draw(rt, "few are expected")
			store.simple.learn(claim, true, &driver.Batch{Seen: map[bool]int{true: 1, false: fewRows + 1}[expected]})
			log.take()
			exchanged, err := store.Exchange(t.Context(), nil, claim)
			require.NoError(rt, err)
			batch, few := exchanged.Batch, n <= fewRows && n*size <= fewBytes
			sent := log.take() + " "
			if mode == "cache_statement" {
				require.Equal(rt, !expected || n > 0 && !few, strings.Contains(sent, strings.Repeat("SELECT ", 2)), "settings and fetch in %s", sent)
			}
			require.Len(rt, batch.Messages, n)
			again := exchange{store: store, claim: claim, token: batch.Lease.Token}
			again.answer.Batch.Seen = batch.Seen
			if n > 0 {
				require.Equal(rt, []int64{batch.Messages[0].ID, batch.Messages[n-1].ID}, []int64{batch.Lease.FirstID, batch.Lease.LastID})
				again.sighting.first, again.sighting.last = &batch.Lease.FirstID, batch.Lease.LastID
				require.NoError(rt, again.fetchLate(t.Context()))
			}
			require.Equal(rt, again.answer.Batch.Messages, batch.Messages)
		})
	}
}

// TestLargeHeadersAreNotFewBytes: what comes with a claim's answer, under the lock of the shard, fits into
// buffers, headers included; no client that reads nothing keeps the shard with it.
func TestLargeHeadersAreNotFewBytes(t *testing.T) {
	t.Parallel()
	for size, few := range map[int]bool{1000: true, 2 * fewBytes / fewRows: false, 60_000: false} {
		var (
			trips atomic.Int64
			log   tracer
		)
		store := wired(t, testenv.Postgres(t), "few", &trips, &stall{}, &log)
		_, err := store.Migrate(t.Context())
		require.NoError(t, err)
		_, err = store.pool.Exec(t.Context(), `INSERT INTO few (message_id, target_broker, stream, type, ordering_key, headers, payload)
			SELECT gen_random_uuid(), 'b', 's', 't', $1, json_build_object('a', repeat('x', $3::int)), '' FROM generate_series(1, $2::int)`, keysOfShard(2)[0], fewRows, size)
		require.NoError(t, err)
		claim := &driver.Claim{Broker: "b", Shard: 2, Limit: 50, Window: 50, Lease: time.Hour, Worker: "w"}
		store.simple.learn(claim, true, &driver.Batch{Seen: 1})
		log.take()
		exchanged, err := store.Exchange(t.Context(), nil, claim)
		require.NoError(t, err)
		require.Len(t, exchanged.Batch.Messages, fewRows)
		assert.Equal(t, !few, strings.Contains(log.take()+" ", strings.Repeat("SELECT ", 2)), "whether %d bytes of headers each are fetched later", size)
	}
}
