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
	d.exec("UPDATE tide SET locked_until = now() + interval '1 hour' WHERE id = 23")
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
	d.exec("UPDATE tide SET locked_until = NULL WHERE id = 23")
	d.exec("UPDATE tide_key_blocks SET wake_at = now()")
	assert.Equal(t, []int64{23}, d.deliver(false))
	assert.Equal(t, []int64{24}, d.deliver(false))
}

// Rows that an operator opens by hand are found by a full look, and by the claim that follows it.
func TestLowWaterFullLook(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	d.store.water.slow = time.Hour // so that polls wait for it
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

// The pool makes connections whenever it has too few, and beside an old transaction it takes long to make
// the marks again.
func TestLowWaterOnANewConnection(t *testing.T) {
	t.Parallel()
	d := newTide(t)
	require.Equal(t, []int64{1}, d.deliver(false))
	d.rise(false, true)
	before, connections := d.floor(), d.store.pool.Stat().NewConnsCount()
	for _, conn := range d.store.pool.AcquireAllIdle(t.Context()) {
		defer conn.Release()
	}
	d.insert(1)
	require.Len(t, d.deliver(false), 1)
	require.Greater(t, d.store.pool.Stat().NewConnsCount(), connections)
	assert.GreaterOrEqual(t, d.floor(), before)
}

// A server that has lost what it had committed, as a standby can that is promoted too early, hands
// out ids again that are below the marks. The first look and the first claim see their rows, also on a
// pool of the application's.
func TestLowWaterAfterAFailoverThatLostRows(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"look", "claim", "claim without order", "window"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			d := newTide(t)
			if first == "claim" {
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
			other := &tide{T: t, store: openStore(t, d.store.pool.Config().ConnString(), "tide")}
			other.exec("DELETE FROM tide WHERE id > 2")
			other.exec("ALTER TABLE tide ALTER COLUMN id RESTART WITH 3")
			other.exec("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
			other.insert(2)
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
			assert.Equal(t, []int64{3, 4}, d.deliver(unordered))
			d.rise(unordered, true)
		})
	}
}

// While a transaction that writes is open, claims read what is there, and not all that was published
// meanwhile; and when it ends its rows come at once, in their places.
func TestClaimsBesideAnOpenWriter(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
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
	given := map[string]any{"brokers": []string{"b"}, "most": 101, "look": 1000}
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
