package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// completion is a table in one shard of which tests look at transactions while they are in progress.
type completion struct {
	*testing.T

	store *Store
	shard int
}

func newCompletion(t *testing.T) *completion {
	t.Helper()
	// Transactions see what was committed before each statement, whatever the server's default.
	store := openStore(t, with(t, testenv.Postgres(t), "default_transaction_isolation", "serializable"), "completion")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	c := &completion{T: t, store: store}
	c.insert()
	require.NoError(t, store.pool.QueryRow(t.Context(), "DELETE FROM completion RETURNING shard").Scan(&c.shard))
	return c
}

func (c *completion) exec(text string, args ...any) {
	c.Helper()
	_, err := c.store.pool.Exec(c.Context(), text, args...)
	require.NoError(c, err, text)
}

// insert writes a row of the key that all tests have in common.
func (c *completion) insert() (id int64) {
	c.Helper()
	require.NoError(c, c.store.pool.QueryRow(c.Context(), `INSERT INTO completion (message_id, target_broker, stream, type, ordering_key, payload)
		VALUES (gen_random_uuid(), 'b', 's', 't', 'key', '') RETURNING id`).Scan(&id))
	return id
}

// insertMany writes a row each of n keys of the shard.
func (c *completion) insertMany(n int) []int64 {
	c.Helper()
	rows, err := c.store.pool.Query(c.Context(), `INSERT INTO completion (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', 't', key, '' FROM (SELECT gen_random_uuid()::text AS key FROM generate_series(1, 100 * $2::int)) AS keys
		 WHERE get_byte(sha256(key::bytea), 0) & 3 = $1 LIMIT $2 RETURNING id`, c.shard, n)
	require.NoError(c, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(c, err)
	require.Len(c, ids, n)
	return ids
}

func (c *completion) request(limit int, wake bool) *driver.Claim {
	return &driver.Claim{Broker: "b", Shard: c.shard, Limit: limit, Window: 100, Lease: time.Hour, Worker: "w", Wake: wake}
}

// claim returns a batch and its ids.
func (c *completion) claim(limit int) (driver.Batch, []int64) {
	c.Helper()
	exchanged, err := c.store.Exchange(c.Context(), nil, c.request(limit, true))
	require.NoError(c, err)
	ids := []int64{}
	for _, m := range exchanged.Batch.Messages {
		ids = append(ids, m.ID)
	}
	return exchanged.Batch, ids
}

func (c *completion) complete(s *driver.Completion) {
	c.Helper()
	exchanged, err := c.store.Exchange(c.Context(), s, nil)
	require.NoError(c, err)
	require.Equal(c, &driver.Completed{}, exchanged.Completed)
}

// drain publishes what there is, and returns it in the order of delivery.
func (c *completion) drain() (all []int64) {
	c.Helper()
	for {
		batch, _ := c.claim(10)
		ids := c.publish(batch)
		if len(ids) == 0 {
			return all
		}
		all = append(all, ids...)
	}
}

// publish completes a batch and returns its ids.
func (c *completion) publish(batch driver.Batch) (ids []int64) {
	c.Helper()
	s := &driver.Completion{Lease: batch.Lease}
	for i := range batch.Messages {
		ids = append(ids, batch.Messages[i].ID)
		s.Published = append(s.Published, driver.Delivered{ID: batch.Messages[i].ID})
	}
	if len(ids) > 0 {
		c.complete(s)
	}
	return ids
}

// hold makes transactions wait that have just changed a row as the condition says, until release is
// called, however short the time is for which their statements wait for a row. under reports how many
// transactions of the database wait for another one.
func (c *completion) hold(table, event, condition string) (under func() int, release func()) {
	c.Helper()
	c.exec("CREATE TABLE IF NOT EXISTS held ()")
	c.exec("CREATE OR REPLACE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $f$ BEGIN PERFORM FROM held; RETURN NULL; END $f$")
	c.exec(fmt.Sprintf("CREATE OR REPLACE TRIGGER hold AFTER %s ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION hold()", event, table, condition))
	holder, err := pgx.Connect(c.Context(), c.store.pool.Config().ConnString())
	require.NoError(c, err)
	tx, err := holder.Begin(c.Context())
	require.NoError(c, err)
	_, err = tx.Exec(c.Context(), "LOCK TABLE held")
	require.NoError(c, err)
	c.Cleanup(func() { _ = holder.Close(context.WithoutCancel(c.Context())) })
	return c.waiting, func() {
		c.Helper()
		require.NoError(c, tx.Rollback(c.Context()))
		c.exec("DROP TRIGGER hold ON " + table)
	}
}

// waiting is how many transactions of the database wait for another one.
func (c *completion) waiting() (n int) {
	c.Helper()
	require.NoError(c, c.store.pool.QueryRow(c.Context(),
		"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0").Scan(&n))
	return n
}

// await waits until something has come to pass.
func (c *completion) await(what func() bool) {
	c.Helper()
	require.Eventually(c, what, time.Minute, time.Millisecond)
}

// While outcomes other than published are being written, nobody claims what they are about: the
// place of a failed row, that of its released followers and the block of its key change in one step
// for all statements of a claim.
func TestClaimWhileACompletionIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, outcome := range []driver.Outcome{
		{Status: outbox.StatusFailed, Spent: true, Delay: time.Hour},
		{Status: outbox.StatusPending, Delay: time.Hour},
		{Status: outbox.StatusPending},
		{Status: outbox.StatusAbandoned, Spent: true},
	} {
		t.Run(fmt.Sprint(outcome.Status, outcome.Delay), func(t *testing.T) {
			t.Parallel()
			c := newCompletion(t)
			first := c.insert()
			batch, ids := c.claim(10)
			require.Equal(t, []int64{first}, ids)
			// The key waits already, behind the claimed row, for a time that has come: a claim
			// would lift that block.
			scheduled := c.insert()
			c.exec("UPDATE completion SET locked_until = now() + interval '1 hour' WHERE id = $1", scheduled)
			deferred, err := c.store.Defer(t.Context(), c.request(10, false))
			require.NoError(t, err)
			require.Equal(t, 1, deferred)
			c.exec("UPDATE completion SET locked_until = NULL WHERE id = $1", scheduled)
			c.exec("UPDATE completion_key_blocks SET wake_at = now()")

			under, release := c.hold("completion", "UPDATE", "NEW.status <> 'processing'")
			completed := make(chan error, 1)
			go func() {
				outcome.ID = first
				_, err := c.store.Exchange(t.Context(), &driver.Completion{Lease: batch.Lease, BlockAbandoned: true, Other: []driver.Outcome{outcome}}, nil)
				completed <- err
			}()
			c.await(func() bool { return under() == 1 })
			other := openStore(t, c.store.pool.Config().ConnString(), "completion")
			backfill := c.request(10, true)
			backfill.Shard += outbox.Shards
			exchanged, err := other.Exchange(t.Context(), nil, backfill)
			require.NoError(t, err)
			assert.Empty(t, exchanged.Batch.Messages, "the classes of a shard hold the same keys")
			claimed := make(chan driver.Batch, 1)
			go func() {
				exchanged, err := other.Exchange(t.Context(), nil, c.request(10, true))
				assert.NoError(t, err)
				claimed <- exchanged.Batch
			}()
			c.await(func() bool { return len(claimed) > 0 || under() == 2 })
			release()
			require.NoError(t, <-completed)
			got := c.publish(<-claimed) // it has seen all of the outcome or nothing
			want := []int64{first, scheduled}
			switch {
			case outcome.Status == outbox.StatusAbandoned:
				want = want[1:]
				require.Empty(t, append(got, c.drain()...), "the key waits for an operator")
				released, err := c.store.UnblockKey(t.Context(), "b", "key")
				require.NoError(t, err)
				require.True(t, released)
			case outcome.Delay > 0:
				require.Empty(t, append(got, c.drain()...), "the key waits for its first row")
				c.exec("UPDATE completion SET locked_until = now() WHERE id = $1", first)
			default:
			}
			assert.Equal(t, want, append(got, c.drain()...))
		})
	}
}

// An operator changes a row by hand, without the shard's lock, after a claim has seen it. The claim
// passes it over, and takes no later one of its key.
func TestClaimWhileARowIsChangedByHand(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]struct {
		limit int
		wake  bool
		many  bool
	}{"plain": {limit: 100}, "with blocks": {limit: 100, wake: true}, "read after the commit": {limit: 100, many: true}, "decided": {limit: 99}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCompletion(t)
			first, second := c.insert(), c.insert()
			failed := &errorLog{}
			config := c.store.pool.Config()
			config.ConnConfig.Tracer = failed
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			defer pool.Close()
			relay, err := New(pool, "completion")
			require.NoError(t, err)
			relay.simple.learn(c.request(request.limit, request.wake), true, &driver.Batch{Seen: map[bool]int{true: fewRows + 1, false: 1}[request.many]})
			tx, err := c.store.pool.Begin(t.Context())
			require.NoError(t, err)
			defer tx.Rollback(t.Context())
			_, err = tx.Exec(t.Context(), "UPDATE completion SET locked_until = now() + interval '1 hour' WHERE id = $1", first)
			require.NoError(t, err)
			claimed := make(chan driver.Batch, 1)
			go func() {
				exchanged, err := relay.Exchange(t.Context(), nil, c.request(request.limit, request.wake))
				assert.NoError(t, err)
				claimed <- exchanged.Batch
			}()
			c.await(func() bool { return c.waiting() == 1 || len(claimed) == 1 }) // it waits for a moment only
			require.NoError(t, tx.Commit(t.Context()))
			assert.Empty(t, (<-claimed).Messages)
			for _, text := range failed.texts {
				assert.Contains(t, text, lockNotAvailable, "an error in the server's log wakes an operator")
			}
			var untouched int
			require.NoError(t, c.store.pool.QueryRow(t.Context(), "SELECT count(*) FROM completion WHERE status = 'pending' AND lock_token IS NULL AND crashes = 0").Scan(&untouched))
			assert.Equal(t, 2, untouched)
			c.exec("UPDATE completion SET locked_until = NULL")
			assert.Equal(t, []int64{first, second}, c.drain())
		})
	}
}

// The key's first row has failed and is just being deferred when an owner that was stopped abandons
// a later row, behind which the key is to wait for an operator. The first row is not to wait for
// that: a completion that did not see it leave would put it behind the new block, and it would be
// overtaken by the row that the operator requeues.
func TestCompletionWhileRowsAreDeferred(t *testing.T) {
	t.Parallel()
	c := newCompletion(t)
	ids := []int64{c.insert(), c.insert(), c.insert()}
	late, got := c.claim(2)
	require.Equal(t, ids[:2], got)
	c.exec("UPDATE completion SET locked_until = now() WHERE status = 'processing'")
	batch, got := c.claim(2)
	require.Equal(t, ids[:1], got, "rows of a lease that ran out come alone")
	c.complete(&driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{{ID: ids[0], Status: outbox.StatusFailed, Spent: true, Delay: time.Hour}}})

	under, release := c.hold("completion_key_blocks", "INSERT", "true")
	deferred := make(chan error, 1)
	go func() {
		_, err := c.store.Defer(t.Context(), c.request(10, false))
		deferred <- err
	}()
	c.await(func() bool { return under() == 1 })
	completed := make(chan error, 1)
	go func() {
		_, err := c.store.Exchange(t.Context(), &driver.Completion{Lease: late.Lease, BlockAbandoned: true, Other: []driver.Outcome{
			{ID: ids[1], Status: outbox.StatusAbandoned, Spent: true},
		}}, nil)
		completed <- err
	}()
	c.await(func() bool { return len(completed) > 0 || under() == 2 })
	release()
	require.NoError(t, <-deferred)
	require.NoError(t, <-completed)

	n, err := c.store.Requeue(t.Context(), admin.Filter{Broker: "b", Statuses: []outbox.Status{outbox.StatusAbandoned}}, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, c.drain(), "the first row waits for its next attempt, and all others for it")
	c.exec("UPDATE completion SET locked_until = now() WHERE id = $1", ids[0])
	c.exec("UPDATE completion_key_blocks SET wake_at = now() WHERE wake_at IS NOT NULL")
	assert.Equal(t, ids, c.drain())
}

// Outcomes are on the disk before a relay relies on them: a crash of the server that took them away
// would have messages sent again without end, and attempts that are never counted. Claims need not
// wait for the disk: losing one repeats a send at most. All transactions read what is committed.
func TestOutcomesAreDurable(t *testing.T) {
	t.Parallel()
	c := newCompletion(t)
	c.exec("CREATE TABLE commits (n bigint GENERATED ALWAYS AS IDENTITY, what text, setting text)")
	// Deferred, so that it sees the setting with which the transaction commits.
	c.exec(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
		INSERT INTO commits (what, setting) VALUES (OLD.status || ' > ' || NEW.status, current_setting('synchronous_commit')
			|| CASE WHEN current_setting('transaction_isolation') <> 'read committed' THEN ', ' || current_setting('transaction_isolation') ELSE '' END);
		RETURN NULL; END $f$`)
	c.exec("CREATE CONSTRAINT TRIGGER note AFTER UPDATE ON completion DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()")
	commits := func() []string {
		t.Helper()
		rows, err := c.store.pool.Query(t.Context(), "WITH gone AS (DELETE FROM commits RETURNING *) SELECT what || ': ' || setting FROM gone GROUP BY 1 ORDER BY min(n)")
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return all
	}
	for _, unordered := range []bool{false, true, false} { // on the same connections: no setting outlives its transaction
		request := c.request(10, false)
		request.Unordered = unordered
		ids := c.insertMany(6)
		exchanged, err := c.store.Exchange(t.Context(), nil, request)
		require.NoError(t, err)
		lease := exchanged.Batch.Lease
		require.Len(t, exchanged.Batch.Messages, len(ids))
		assert.Equal(t, []string{"pending > processing: off"}, commits(), "a claim")
		c.complete(&driver.Completion{Lease: lease, Published: []driver.Delivered{{ID: ids[0]}}})
		assert.Equal(t, []string{"processing > published: on"}, commits())
		c.complete(&driver.Completion{Lease: lease, Other: []driver.Outcome{{ID: ids[1], Status: outbox.StatusFailed, Spent: true, Delay: time.Hour}}})
		assert.Equal(t, []string{"processing > failed: on"}, commits())
		next := c.insertMany(1) // of the claim that travels together with the completion
		exchanged, err = c.store.Exchange(t.Context(), &driver.Completion{
			Lease: lease, BlockAbandoned: true, Published: []driver.Delivered{{ID: ids[2]}}, Other: []driver.Outcome{
				{ID: ids[3], Status: outbox.StatusAbandoned, Spent: true},
				{ID: ids[4], Status: outbox.StatusPending, Delay: time.Hour},
				{ID: ids[5], Status: outbox.StatusFailed, Spent: true, Delay: time.Hour},
			},
		}, request)
		require.NoError(t, err)
		assert.Zero(t, exchanged.Completed.Lost)
		assert.ElementsMatch(t, []string{
			"processing > abandoned: on", "processing > pending: on", "processing > failed: on", "processing > published: on", "pending > processing: off",
		}, commits())
		c.complete(&driver.Completion{Lease: exchanged.Batch.Lease, Published: []driver.Delivered{{ID: next[0]}}})
		assert.Equal(t, []string{"processing > published: on"}, commits())

		n, err := c.store.Requeue(t.Context(), admin.Filter{Broker: "b"}, 10)
		require.NoError(t, err)
		require.Equal(t, 4, n)
		n, err = c.store.Replay(t.Context(), admin.Filter{Broker: "b"}, 10)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		n, err = c.store.Abandon(t.Context(), admin.Filter{Broker: "b"}, "test", 10)
		require.NoError(t, err)
		require.Equal(t, 7, n)
		assert.ElementsMatch(t, []string{
			"failed > pending: on", "abandoned > pending: on", "pending > pending: on", "published > pending: on", "pending > abandoned: on",
		}, commits(), "operators")
		c.exec("DELETE FROM completion")
		c.exec("DELETE FROM completion_key_blocks")
	}
}

// A key that no index can hold, on a table whose CHECK an operator has dropped, blocks nothing: else
// nothing of its batch could be written, and its neighbours would be sent again.
func TestLongKeyCostsItself(t *testing.T) {
	t.Parallel()
	c := newCompletion(t)
	c.exec("ALTER TABLE completion DROP CONSTRAINT IF EXISTS completion_ordering_key, DROP CONSTRAINT IF EXISTS completion_bounds")
	c.exec(`INSERT INTO completion (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', 't', key, '' FROM (SELECT string_agg(md5((300 * n + i)::text), '') AS key
		  FROM generate_series(1, 100) AS n, generate_series(1, 250) AS i GROUP BY n) AS keys
		 WHERE get_byte(sha256(key::bytea), 0) & 3 = $1 LIMIT 1`, c.shard)
	c.insert()
	batch, ids := c.claim(10)
	require.Len(t, ids, 2)
	c.complete(&driver.Completion{
		Lease: batch.Lease, BlockAbandoned: true, Published: []driver.Delivered{{ID: ids[1]}},
		Other: []driver.Outcome{{ID: ids[0], Status: outbox.StatusAbandoned, Spent: true}},
	})
	blocks := -1
	require.NoError(t, c.store.pool.QueryRow(t.Context(), "SELECT count(*) FROM completion_key_blocks").Scan(&blocks))
	assert.Zero(t, blocks)
}
