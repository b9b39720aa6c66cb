package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// tide is a store whose marks rise with every few claims.
type tide struct {
	*testing.T

	store *Store
	shard int
}

func newTide(t *testing.T) *tide {
	t.Helper()
	store := openStore(t, testenv.Postgres(t), "tide")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	store.water.every = 1
	d := &tide{T: t, store: store}
	d.insert(1)
	require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT shard FROM tide").Scan(&d.shard))
	return d
}

func (d *tide) insert(n int) {
	d.Helper()
	_, err := d.store.pool.Exec(d.Context(), insertTide, n)
	require.NoError(d, err)
}

// insertOthers writes rows of a type, each with a key of its own.
func (d *tide) insertOthers(name string, n int) {
	d.Helper()
	d.exec(`INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', $1, $1 || i, '' FROM generate_series(1, 1000) AS i
		 WHERE get_byte(sha256(($1 || i)::bytea), 0) & 3 = $2 LIMIT $3`, name, d.shard, n)
}

func (d *tide) exec(text string, args ...any) {
	d.Helper()
	_, err := d.store.pool.Exec(d.Context(), text, args...)
	require.NoError(d, err)
}

// deliver claims and publishes what there is, and returns its ids.
func (d *tide) deliver(unordered bool) (ids []int64) {
	d.Helper()
	exchanged, err := d.store.Exchange(d.Context(), nil, &driver.Claim{
		Broker: "b", Shard: d.shard, Limit: 100, Window: 100, Lease: time.Hour, Worker: "w", Unordered: unordered, Wake: true,
	})
	require.NoError(d, err)
	s := &driver.Completion{Lease: exchanged.Batch.Lease}
	for _, m := range exchanged.Batch.Messages {
		ids = append(ids, m.ID)
		s.Published = append(s.Published, driver.Delivered{ID: m.ID})
	}
	_, err = d.store.Exchange(d.Context(), s, nil)
	require.NoError(d, err)
	return ids
}

func (d *tide) backlog() []admin.Backlog {
	d.Helper()
	backlog, err := d.store.Backlog(d.Context())
	require.NoError(d, err)
	return backlog
}

func (d *tide) floor() int64 {
	d.store.water.mu.Lock()
	defer d.store.water.mu.Unlock()
	return d.store.water.line("b", d.shard).class[d.shard/outbox.Shards].floor
}

// rise delivers rows one by one until the mark stands behind the first of them, or, when it must
// not rise, often enough.
func (d *tide) rise(unordered, rises bool) {
	d.Helper()
	before := d.floor()
	for range 10 {
		d.insert(1)
		require.Len(d, d.deliver(unordered), 1)
	}
	if rises {
		require.Greater(d, d.floor(), before)
	} else {
		require.Equal(d, before, d.floor())
	}
}

// A writer that commits late is waited for: its row comes with the next claim, in its place.
func TestLowWaterWaitsForWriters(t *testing.T) {
	t.Parallel()
	for name, unordered := range map[string]bool{"ordered": false, "unordered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTide(t)
			require.Equal(t, []int64{1}, d.deliver(unordered))
			d.rise(unordered, true)
			writer, err := d.store.pool.Begin(t.Context())
			require.NoError(t, err)
			defer writer.Rollback(t.Context())
			_, err = writer.Exec(t.Context(), insertTide, 2)
			require.NoError(t, err)
			var last int64
			require.NoError(t, writer.QueryRow(t.Context(), "SELECT max(id) FROM tide").Scan(&last))
			d.insert(1) // of the claim that sees it first, all later ones are
			require.Equal(t, []int64{last + 1}, d.deliver(unordered))
			for range 2 { // what was on its way may still arrive
				d.insert(1)
				d.deliver(unordered)
			}
			d.rise(unordered, false)
			require.LessOrEqual(t, d.floor(), last-1)
			d.insert(1)
			require.NoError(t, writer.Commit(t.Context()))
			assert.Equal(t, []int64{last - 1, last, last + 14}, d.deliver(unordered))
			d.rise(unordered, true)
			assert.Greater(t, d.floor(), last)
		})
	}
}

// Rows that an operator brings back, and those that come back from where they were deferred, are
// seen at once.
func TestLowWaterAfterReopening(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	other := openStore(t, d.store.pool.Config().ConnString(), "tide")
	require.Equal(t, []int64{1}, d.deliver(false))
	d.rise(false, true)
	n, err := other.Replay(t.Context(), admin.Filter{Broker: "b"}, 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	ready, err := d.store.Ready(t.Context(), "b", 0)
	require.NoError(t, err)
	assert.Equal(t, []int{d.shard}, ready.Shards)
	d.insert(1)
	assert.Equal(t, []int64{1, 12}, d.deliver(false))
	d.rise(false, true)

	// Ids 23 and 24 wait for their time, and others of another key pass them by meanwhile.
	d.insert(2)
	d.exec("UPDATE tide SET available_at = now() + interval '1 hour' WHERE id = 23")
	deferred, err := other.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: d.shard, Window: 100})
	require.NoError(t, err)
	require.Equal(t, 2, deferred)
	for range 10 {
		d.exec(`INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload)
			SELECT $1, 'b', 's', 't', 'key-' || i, '' FROM generate_series(1, 100) AS i
			 WHERE get_byte(sha256(('key-' || i)::bytea), 0) & 3 = $2 LIMIT 1`, uuid.New(), d.shard)
		require.Len(t, d.deliver(false), 1)
	}
	require.Greater(t, d.floor(), int64(24))
	d.exec("UPDATE tide SET available_at = NULL WHERE id = 23")
	d.exec("UPDATE tide_key_blocks SET wake_at = now()")
	assert.Equal(t, []int64{23}, d.deliver(false))
	assert.Equal(t, []int64{24}, d.deliver(false))
}

// A claim has read its window; and before it tells what it has learned, rows of the shard come
// back, and another worker of the process, which has begun before it, takes one of them and has
// learned that. What the first claim knows is older, and raises no mark above the others.
func TestLowWaterLearnedLate(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]struct{ replayed, deferred bool }{
		"an operator replays":   {replayed: true},
		"deferred rows are due": {deferred: true},
		"both":                  {replayed: true, deferred: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTide(t)
			require.Equal(t, []int64{1}, d.deliver(false))
			d.insertOthers("replayed", 2)
			require.Equal(t, []int64{2, 3}, d.deliver(false))
			d.insertOthers("deferred", 2)
			d.exec("UPDATE tide SET available_at = now() + interval '1 hour' WHERE type = 'deferred'")
			deferred, err := d.store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: d.shard, Window: 100})
			require.NoError(t, err)
			require.Equal(t, 2, deferred)
			d.rise(false, true)

			claim := func(limit int) *driver.Claim {
				return &driver.Claim{Broker: "b", Shard: d.shard, Limit: limit, Window: 100, Lease: time.Hour, Worker: "w", Wake: true}
			}
			begin := func(limit int) *exchange {
				return &exchange{store: d.store, claim: claim(limit), simple: limit == 100, baseline: d.store.water.take("b", d.shard, time.Now())}
			}
			taken := func(batch driver.Batch) (ids []int64) {
				for _, m := range batch.Messages {
					ids = append(ids, m.ID)
				}
				return ids
			}
			second := begin(1)
			d.rise(false, true)
			d.insert(1)
			first := begin(100)
			require.NoError(t, first.run(t.Context()))
			require.Len(t, first.answer.Batch.Messages, 1)
			var want []int64
			if back.replayed {
				n, err := d.store.Replay(t.Context(), admin.Filter{Broker: "b", Type: "replayed"}, 10)
				require.NoError(t, err)
				require.Equal(t, 2, n)
				want = append(want, 2, 3)
			}
			if back.deferred {
				d.exec("UPDATE tide SET available_at = NULL WHERE type = 'deferred'")
				d.exec("UPDATE tide_key_blocks SET wake_at = now()")
				want = append(want, 4, 5)
			}
			require.NoError(t, second.run(t.Context()))
			d.store.water.learn("b", d.shard, second.baseline, second.sighting, time.Now())
			d.store.water.learn("b", d.shard, first.baseline, first.sighting, time.Now())
			got := taken(second.answer.Batch)
			for range want {
				exchanged, err := d.store.Exchange(t.Context(), nil, claim(1))
				require.NoError(t, err)
				got = append(got, taken(exchanged.Batch)...)
			}
			assert.Equal(t, want, got)
		})
	}
}

// Rows come back by the hands of another process. This one, whose marks stand above them, sees them
// with its next claim.
func TestLowWaterOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(d *tide, other *Store){
		"deferred rows are due": func(d *tide, other *Store) {
			d.insertOthers("due", 2)
			d.exec("UPDATE tide SET available_at = now() + interval '1 hour' WHERE type = 'due'")
			d.deferRows(other)
			d.pass()
			d.exec("UPDATE tide SET available_at = NULL WHERE type = 'due'")
			d.exec("UPDATE tide_key_blocks SET wake_at = now()")
			require.Equal(d, []int64{2}, d.taken(other, 1, true).ids)
			assert.Equal(d, []int64{3}, d.taken(d.store, 100, false).ids)
		},
		"followers are let through": func(d *tide, other *Store) {
			d.insertOthers("follower", 1)
			d.exec(`INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload)
				SELECT gen_random_uuid(), 'b', 's', type, ordering_key, '' FROM tide, generate_series(1, 2) WHERE id = 2`)
			d.exec("UPDATE tide SET available_at = now() + interval '1 hour' WHERE id = 2")
			d.deferRows(other)
			d.exec("UPDATE tide SET available_at = NULL WHERE id = 2")
			d.exec("UPDATE tide_key_blocks SET wake_at = now()")
			d.publish(other, d.taken(other, 100, true))
			d.pass()
			first := d.taken(other, 1, true)
			require.Equal(d, []int64{3}, first.ids)
			d.publish(other, first)
			assert.Equal(d, []int64{4}, d.taken(d.store, 100, false).ids)
		},
		"a late owner abandons": func(d *tide, other *Store) {
			d.insertOthers("late", 1)
			d.exec(`INSERT INTO tide (message_id, target_broker, stream, type, ordering_key, payload)
				SELECT gen_random_uuid(), 'b', 's', type, ordering_key, '' FROM tide, generate_series(1, 2) WHERE id = 2`)
			late := d.taken(other, 2, false)
			require.Equal(d, []int64{2, 3}, late.ids)
			d.exec("UPDATE tide SET locked_until = now() WHERE status = 'processing'")
			again := d.taken(d.store, 2, false)
			require.Equal(d, []int64{2}, again.ids)
			d.complete(d.store, again, driver.Outcome{ID: 2, Status: outbox.StatusFailed, Spent: true, Delay: time.Hour})
			d.deferRows(other)
			d.pass()
			d.complete(other, late, driver.Outcome{ID: 3, Status: outbox.StatusAbandoned, Spent: true})
			d.exec("UPDATE tide SET locked_until = NULL WHERE id = 2")
			assert.Equal(d, []int64{2}, d.taken(d.store, 100, false).ids)
		},
		"an operator replays rows of low priority": func(d *tide, other *Store) {
			d.exec("ALTER TABLE tide ALTER COLUMN priority SET DEFAULT -1")
			d.shard += outbox.Shards
			d.pass()
			d.exec("DELETE FROM tide WHERE id = 1") // of the same key, and would go first
			n, err := other.Replay(d.Context(), admin.Filter{Broker: "b"}, 2)
			require.NoError(d, err)
			require.Equal(d, 2, n)
			ready, err := d.store.Ready(d.Context(), "b", 0)
			require.NoError(d, err)
			assert.Equal(d, []int{d.shard}, ready.Shards)
			assert.Equal(d, []int64{2, 3}, d.taken(d.store, 100, false).ids)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTide(t)
			require.Equal(t, []int64{1}, d.deliver(false))
			test(d, openStore(t, d.store.pool.Config().ConnString(), "tide"))
		})
	}
}

// taking is a batch and the ids of its rows.
type taking struct {
	lease driver.Lease
	ids   []int64
}

func (d *tide) taken(store *Store, limit int, wake bool) (c taking) {
	d.Helper()
	exchanged, err := store.Exchange(d.Context(), nil, &driver.Claim{Broker: "b", Shard: d.shard, Limit: limit, Window: 100, Lease: time.Hour, Worker: "w", Wake: wake})
	require.NoError(d, err)
	c.lease = exchanged.Batch.Lease
	for _, m := range exchanged.Batch.Messages {
		c.ids = append(c.ids, m.ID)
	}
	return c
}

func (d *tide) publish(store *Store, c taking) {
	d.Helper()
	s := &driver.Completion{Lease: c.lease}
	for _, id := range c.ids {
		s.Published = append(s.Published, driver.Delivered{ID: id})
	}
	_, err := store.Exchange(d.Context(), s, nil)
	require.NoError(d, err)
}

func (d *tide) complete(store *Store, c taking, outcome driver.Outcome) {
	d.Helper()
	exchanged, err := store.Exchange(d.Context(), &driver.Completion{Lease: c.lease, BlockAbandoned: true, Other: []driver.Outcome{outcome}}, nil)
	require.NoError(d, err)
	require.Zero(d, exchanged.Completed.Lost)
}

func (d *tide) deferRows(store *Store) {
	d.Helper()
	deferred, err := store.Defer(d.Context(), &driver.Claim{Broker: "b", Shard: d.shard, Window: 100})
	require.NoError(d, err)
	require.Positive(d, deferred)
}

// pass has other rows pass by, with claims that bring nothing back, until the mark stands still.
func (d *tide) pass() {
	d.Helper()
	before := d.floor()
	for range 10 {
		d.insert(1)
		c := d.taken(d.store, 100, false)
		require.Len(d, c.ids, 1)
		d.publish(d.store, c)
	}
	require.Greater(d, d.floor(), before)
}

// Rows that an operator opens by hand are found by the full look, and by the claim that follows it.
func TestLowWaterFullLook(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	require.Equal(t, []int64{1}, d.deliver(false))
	d.rise(false, true)
	look := func() []int {
		ready, err := d.store.Ready(t.Context(), "b", 0)
		require.NoError(t, err)
		return ready.Shards
	}
	assert.Empty(t, look())
	d.exec("UPDATE tide SET status = 'pending', published_at = NULL, finished_at = NULL WHERE id = 1")
	assert.Empty(t, look())
	d.store.water.look["b"] = time.Now().Add(-time.Second)
	assert.Equal(t, []int{d.shard}, look())
	assert.Equal(t, []int64{1}, d.deliver(false))
	assert.Empty(t, look())
	d.rise(false, true)
}

// A server that has lost what it had committed, as a standby can that is promoted too early, hands
// out ids again that are below the marks. Their rows are seen all the same, by the first look and by the
// first claim, whoever made the pool.
func TestLowWaterAfterAFailoverThatLostRows(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"a pool of its own": true, "a pool of the application's": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, first := range []string{"look", "claim", "claim without order", "window"} {
				d := newTide(t)
				if !own {
					pool, err := pgxpool.New(t.Context(), d.store.pool.Config().ConnString())
					require.NoError(t, err)
					t.Cleanup(pool.Close)
					d.store, err = New(pool, "tide")
					require.NoError(t, err)
					d.store.water.every = 1
				}
				unordered := first == "claim without order"
				require.Equal(t, []int64{1}, d.deliver(unordered))
				d.rise(unordered, true)
				other := openStore(t, d.store.pool.Config().ConnString(), "tide")
				for _, statement := range []string{
					"DELETE FROM tide WHERE id > 2", "ALTER TABLE tide ALTER COLUMN id RESTART WITH 3",
					"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
				} {
					_, err := other.pool.Exec(t.Context(), statement)
					require.NoError(t, err)
				}
				_, err := other.pool.Exec(t.Context(), insertTide, 2)
				require.NoError(t, err)
				d.store.pool.Reset() // so that no call meets a connection that has ended
				switch first {
				case "look":
					ready, err := d.store.Ready(t.Context(), "b", 0)
					require.NoError(t, err)
					assert.Equal(t, []int{d.shard}, ready.Shards)
				case "window":
					w, err := thin{d.store}.Window(t.Context(), &driver.Claim{Broker: "b", Shard: d.shard, Window: 10})
					require.NoError(t, err)
					assert.Len(t, w.Rows, 2)
				}
				assert.Equal(t, []int64{3, 4}, d.deliver(unordered), first)
				d.rise(unordered, true)
			}
		})
	}
}

// While a transaction that writes is open, claims read what is there, and not all that was published
// meanwhile; and when it ends its rows come at once, in their places.
func TestClaimsBesideAnOpenWriter(t *testing.T) {
	t.Parallel()
	for name, savepoint := range map[string]bool{"": false, "with a savepoint": true} {
		t.Run("writer "+name, func(t *testing.T) {
			t.Parallel()
			d := newTide(t)
			require.Equal(t, []int64{1}, d.deliver(false))
			d.rise(false, true)
			writer, err := d.store.pool.Begin(t.Context())
			require.NoError(t, err)
			defer writer.Rollback(t.Context())
			if savepoint {
				_, err = writer.Exec(t.Context(), "SAVEPOINT a")
				require.NoError(t, err)
			}
			_, err = writer.Exec(t.Context(), insertTide, 2)
			require.NoError(t, err)
			var early int64
			require.NoError(t, writer.QueryRow(t.Context(), "SELECT max(id) FROM tide").Scan(&early))
			for range 100 {
				d.insert(100)
				require.Len(t, d.deliver(false), 100)
			}
			assert.LessOrEqual(t, d.floor(), early-1)
			for range 3 {
				d.insert(1)
				d.deliver(false)
				assert.LessOrEqual(t, d.read(), 1000, "entries of the index that a claim reads")
			}
			assert.LessOrEqual(t, d.readForBacklog(), 1000, "entries that a question for the backlog reads")
			d.store.Know("b")
			assert.Equal(t, []admin.Backlog{{Broker: "b"}}, d.backlog())
			ready, err := d.store.Ready(t.Context(), "b", 0)
			require.NoError(t, err)
			assert.Empty(t, ready.Shards)
			_, err = writer.Exec(t.Context(), "UPDATE tide SET created_at = now() - interval '1 hour' WHERE id = $1", early)
			require.NoError(t, err)
			require.NoError(t, writer.Commit(t.Context()))
			d.insert(1)
			assert.Zero(t, d.backlog()[0].Lag.Round(time.Hour), "an earlier row of its key is open")
			d.exec("UPDATE tide SET created_at = now() - interval '1 hour' WHERE id = $1", early-1)
			assert.Equal(t, time.Hour, d.backlog()[0].Lag.Round(time.Hour), "from before the marks")
			ready, err = d.store.Ready(t.Context(), "b", 0)
			require.NoError(t, err)
			assert.Equal(t, []int{d.shard}, ready.Shards)
			ids := d.deliver(false)
			require.Len(t, ids, 3)
			assert.Equal(t, []int64{early - 1, early}, ids[:2])
			d.rise(false, true)
			assert.Greater(t, d.floor(), early)
		})
	}
}

// read is how many entries of its index a claim reads, by the marks that there are.
func (d *tide) read() (entries int) {
	d.Helper()
	b := d.store.water.peek("b", d.shard)
	return d.entries(d.store.sql.claim, "b", d.shard, 100, "w", pgUUID([16]byte{1}), int64(1e6), b.floor, b.version, true, 16<<20, false, b.sessions, b.writers, b.above)
}

// readForBacklog is how many a question for the backlog reads.
func (d *tide) readForBacklog() (entries int) {
	d.Helper()
	texts, parameters := d.store.Texts()
	given := map[string]any{"brokers": []string{"b"}, "most": 101}
	for name, list := range (database{d.store}).Marks("b") {
		given[name] = list.(sqladmin.List).Items
	}
	var bound []any
	for _, name := range parameters["backlog"] {
		require.Contains(d, given, name)
		bound = append(bound, given[name])
	}
	return d.entries(texts["backlog"], bound...)
}

// entries is how many of the claim's index a statement reads, in a session in which the marks hold.
func (d *tide) entries(text string, args ...any) (entries int) {
	d.Helper()
	tx, err := d.store.pool.Begin(d.Context())
	require.NoError(d, err)
	defer tx.Rollback(d.Context())
	b := d.store.water.peek("b", d.shard)
	require.NotEmpty(d, b.sessions)
	counted := func() (n int) { // what this session has done and not reported yet
		require.NoError(d, tx.QueryRow(d.Context(), "SELECT pg_stat_get_xact_tuples_returned('tide_open'::regclass)").Scan(&n))
		return n
	}
	_, err = tx.Exec(d.Context(), fmt.Sprintf("SET LOCAL fanout.session = %d", b.sessions[0]))
	require.NoError(d, err)
	_, err = tx.Exec(d.Context(), d.store.sql.tryLock, shardLock("b", d.shard))
	require.NoError(d, err)
	_, err = tx.Exec(d.Context(), "SET LOCAL enable_seqscan = off")
	require.NoError(d, err)
	before := counted()
	_, err = tx.Exec(d.Context(), text, args...)
	require.NoError(d, err)
	return counted() - before
}
