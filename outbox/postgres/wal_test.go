package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
)

// What one would write by hand for this table without leases to recover, order, or anything but a
// claim and a mark; it is what ours is compared with. $1 shard, $2 token, $3 worker or ids.
const (
	claimByHand = `UPDATE wal SET status = 'processing', locked_by = $3, lock_token = $2, locked_until = now() + interval '1 minute'
		WHERE ctid = ANY (ARRAY(SELECT ctid FROM wal WHERE target_broker = 'b' AND shard = $1 AND finished_at IS NULL AND NOT deferred
			AND status = 'pending' ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED))`
	markByHand = `UPDATE wal SET status = 'published', published_at = now(), finished_at = now(), attempts = attempts + 1,
		locked_by = NULL, lock_token = NULL, locked_until = NULL, broker_message_id = '1780000000000-0'
		WHERE target_broker = 'b' AND shard = $1 AND finished_at IS NULL AND NOT deferred AND lock_token = $2 AND id = ANY ($3::bigint[])`
)

// The ways to claim a batch.
const (
	byHand    = "by hand"
	ordered   = "ordered"
	unordered = "unordered"
	deleted   = "ordered, deleted"
)

// TestWAL compares what a message costs in the log, from its claim to its mark, with statements by
// hand, in whole bytes. EXPLAIN counts what the statement itself has logged, whatever others do. What
// would vary is left out: whole pages, of which the first change after a checkpoint logs one, and
// the removal of dead versions, which depends on the snapshots of others. Each page has room for
// all versions of its rows. What is logged for a page of an index and not for a row, its root or a
// deduplication, varies by one or two in 2,000 messages, a tenth of a byte for each.
func TestWAL(t *testing.T) {
	testenv.NeedSeconds(t)
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, "wal").Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	exec(t, conn, "ALTER TABLE wal SET (autovacuum_enabled = false, fillfactor = 30)")
	keepDead(t, dsn)
	exec(t, conn, "SELECT set_config('fanout.shard', 'held', false)")

	const batch, rounds = 500, 4 // one for each shard
	total := map[string]int{}
	for round := 0; round < rounds; {
		images, bytes := 0, map[string]int{}
		for _, way := range []string{byHand, ordered, unordered, deleted} {
			// Each has fresh pages.
			exec(t, conn, "TRUNCATE wal")
			exec(t, conn, `INSERT INTO wal (message_id, target_broker, stream, type, ordering_key, headers, payload)
				SELECT lpad(to_hex($2::int * 100000 + i), 32, '0')::uuid, 'b', 'ordering::order', 'Ordering.OrderPlaced.v1', 'ordering::order-' || i % 977
				     , '{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}', convert_to(repeat('x', 500), 'UTF8')
				  FROM generate_series(1, 6 * $1::int) AS i`, batch, round)
			n, more := walOfBatch(t, conn, round, batch, way)
			bytes[way], images = n, images+more
		}
		if images > 0 { // a checkpoint has passed, again
			continue
		}
		for way, n := range bytes {
			total[way] += n
		}
		for _, index := range []string{"wal_deferred", "wal_deferred_key"} {
			var pages int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_relation_size($1::regclass) / current_setting('block_size')::int", index).Scan(&pages))
			require.Equal(t, 1, pages, "%s has its own page and no entry: no row was deferred", index)
		}
		round++
	}
	perMessage := func(way string) int { return (total[way] + batch*rounds/2) / (batch * rounds) }
	t.Logf("bytes of log per message: ordered %d, unordered %d, by hand %d; deleted when published %d",
		perMessage(ordered), perMessage(unordered), perMessage(byHand), perMessage(deleted))
	assert.Equal(t, perMessage(byHand), perMessage(unordered))
	assert.Equal(t, perMessage(byHand)-lockBytes, perMessage(ordered), "the shard's lock stands for that of each row")
	assert.LessOrEqual(t, perMessage(ordered), 573, "some 80 of them are the entry of a published row in the index of searches")
	assert.LessOrEqual(t, perMessage(deleted), 207, "a row that goes needs no entry of an index")
}

// TestWALOfSearches bounds what the index of searches adds to the log of rows that are inserted, one by
// one and many at once, and published. Right after a checkpoint PostgreSQL logs each page whole that
// changes for the first time: rows of one time must not change all pages of an index. Bytes are
// counted where there is no such image, and images on their own: a checkpoint of others that comes in
// between adds a few.
func TestWALOfSearches(t *testing.T) {
	testenv.NeedSeconds(t)
	t.Parallel()
	dsn := testenv.Postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	const (
		without, with  = "wal_without", "wal_with"
		before         = 15_000 // rows that are there
		few, many      = 200, 3000
		single, batch  = "single rows", "many at once"
		pagesOfRows    = 30
		pagesOfAnIndex = 35 // those of the entries of as many rows
	)
	tables, next := []string{without, with}, before
	for _, table := range tables {
		_, err := openStore(t, dsn, table).Migrate(t.Context())
		require.NoError(t, err)
		exec(t, conn, "ALTER TABLE "+table+" SET (autovacuum_enabled = false)")
		exec(t, conn, insertSearched(table, "i", 1, before))
	}
	exec(t, conn, "DROP INDEX wal_without_search")
	exec(t, conn, "ANALYZE wal_without, wal_with")

	insert := func(table, way string) (bytes, images int) {
		if way == batch {
			return walOf(t, conn, insertSearched(table, "i", next+1, next+many), "")
		}
		exec(t, conn, "PREPARE planned (bigint) AS "+insertSearched(table, "$1", 1, 1))
		defer exec(t, conn, "DEALLOCATE planned")
		for i := range few {
			plan := explainExecute(t, conn, fmt.Sprint(next+i+1))
			bytes, images = bytes+plan.WALBytes, images+plan.WALImages
		}
		return bytes, images
	}
	for way, rows := range map[string]int{single: few, batch: many} {
		exec(t, conn, "CHECKPOINT")
		bytes, images := map[string]int{}, map[string]int{}
		for _, table := range tables {
			bytes[table], images[table] = insert(table, way)
		}
		next += rows
		t.Logf("%s after a checkpoint: %d bytes of log per row with the index of searches, %d without; %d and %d pages whole",
			way, bytes[with]/rows, bytes[without]/rows, images[with], images[without])
		assert.LessOrEqual(t, images[with], images[without]+pagesOfRows, way)

		for more := 1; more > 0; next += rows { // until no checkpoint has passed
			more = 0
			for _, table := range tables {
				var n int
				bytes[table], n = insert(table, way)
				more += n
			}
		}
		t.Logf("%s: %d bytes of log per row with the index of searches, %d without", way, bytes[with]/rows, bytes[without]/rows)
		assert.LessOrEqual(t, 100*bytes[with], 110*bytes[without], way)
		assert.Greater(t, bytes[with], bytes[without]+60*rows, "%s: the index has an entry for each row", way)
	}

	// A checkpoint of others would add all pages of the table: so it counts if it never fits.
	exec(t, conn, "SET enable_seqscan = off")
	var added int
	for range 5 {
		exec(t, conn, "CHECKPOINT")
		var images [2]int
		for n, table := range tables {
			var bytes int
			bytes, images[n] = walOf(t, conn, fmt.Sprintf(`UPDATE %s SET status = 'published', published_at = now(), finished_at = now()
				WHERE target_broker = 'b' AND finished_at IS NULL AND NOT deferred AND id > (SELECT max(id) FROM %[1]s) - %d`, table, many), "")
			t.Logf("rows that are published after a checkpoint, %s: %d bytes of log per row, %d pages whole", table, bytes/many, images[n])
			insert(table, batch)
		}
		next += many
		if added = images[1] - images[0]; added >= 0 && added <= pagesOfAnIndex {
			break
		}
	}
	assert.LessOrEqual(t, added, pagesOfAnIndex)
}

// insertSearched inserts rows that have all that a search finds, and 700 bytes of payload. i is what
// numbers them, first to last.
func insertSearched(table, i string, first, last int) string {
	return fmt.Sprintf(`INSERT INTO %[1]s (message_id, target_broker, stream, type, ordering_key, headers, payload, aggregate_type, aggregate_id, correlation_id, causation_id, tenant_id)
		SELECT ('01a1fd9d-d6b8-7000-8000-' || lpad(to_hex(%[2]s), 12, '0'))::uuid, 'b', 'ordering::order', 'Ordering.OrderPlaced.v1', 'ordering::order-' || %[2]s / 3
		     , '{"traceparent":"00-' || md5('t' || %[2]s) || '-00f067aa0ba902b7-01"}', convert_to(repeat('x', 700), 'UTF8'), 'order', (%[2]s / 3)::text
		     , md5((%[2]s)::text)::uuid::text, md5('c' || %[2]s)::uuid::text, 'tenant-' || %[2]s %% 50
		  FROM generate_series(%[3]d, %[4]d) AS i`, table, i, first, last)
}

// lockBytes is what the lock of one row logs.
const lockBytes = 54

// walOfBatch claims and marks one batch, and returns what the log got.
func walOfBatch(t *testing.T, conn *pgx.Conn, round, batch int, way string) (bytes, images int) {
	t.Helper()
	shard, token := fmt.Sprint(round), "'"+uuid.NewString()+"'"
	worker := "'relay-7f9c5d/1/default/default/0" + strings.Repeat("x", round) + "'" // of any length
	var claim string
	args := fmt.Sprintf("'b', %s, %d, %s, %s, 60000000, 0, 0, true, 16777216, false, '{}', '{}', 0", shard, batch, worker, token)
	switch way {
	case ordered, deleted:
		claim = readSQL("claim", "wal")
	case unordered:
		claim, args = readSQL("claim_unordered", "wal"), fmt.Sprintf("'b', %s, %d, %s, %s, 60000000, 0, 0, false, true, 16777216, '{}', '{}', 0", shard, batch, worker, token)
	case byHand:
		claim, args = claimByHand, strings.Join([]string{shard, token, worker}, ", ")
	}
	claimed, images := walOf(t, conn, claim, args)
	var first, last int64
	var ids []int64
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT min(id), max(id), array_agg(id ORDER BY id) FROM wal WHERE lock_token = "+token).
		Scan(&first, &last, &ids))
	require.Len(t, ids, batch)
	list := "ARRAY" + strings.ReplaceAll(fmt.Sprint(ids), " ", ", ")
	mark, args := readSQL("mark_published", "wal"), fmt.Sprintf("'b', %s, %s, %d, %d, %s, %s", shard, token, first, last, list, repeated("'1780000000000-0'", batch))
	switch way {
	case deleted:
		mark, args = readSQL("delete_published", "wal"), fmt.Sprintf("'b', %s, %s, %d, %d, %s", shard, token, first, last, list)
	case byHand:
		mark, args = markByHand, strings.Join([]string{shard, token, list}, ", ")
	}
	marked, more := walOf(t, conn, mark, args)
	return claimed + marked, images + more
}

// keepDead keeps versions of rows that are dead from being pruned until the test ends: how many can
// be, and what that logs, depends on the snapshots of others.
func keepDead(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	exec(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	exec(t, conn, "SELECT") // which takes the snapshot
}

// walOf executes a statement and returns the bytes that it has logged, and how many whole pages are
// among them.
func walOf(t *testing.T, conn *pgx.Conn, text, args string) (bytes, images int) {
	t.Helper()
	exec(t, conn, "PREPARE planned AS "+text)
	defer exec(t, conn, "DEALLOCATE planned")
	plan := explainExecute(t, conn, args)
	plan.walk(func(n *planNode) { bytes, images = max(bytes, n.WALBytes), max(images, n.WALImages) }) // of a node and all below it
	return bytes, images
}
