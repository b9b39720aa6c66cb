package postgres

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// repeatedIDs is a table whose identity has begun anew.
type repeatedIDs struct {
	*testing.T

	conn  *pgx.Conn
	store *Store
}

func newRepeated(t *testing.T) *repeatedIDs {
	t.Helper()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "repeated")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return &repeatedIDs{t, conn, store}
}

// fourKeys are keys of shard 1.
func fourKeys() (keys []string) {
	for n := 0; len(keys) < 4; n++ {
		if key := fmt.Sprintf("key-%d", n); outbox.Postgres.Shard(&outbox.Row{OrderingKey: key}) == 1 {
			keys = append(keys, key)
		}
	}
	return keys
}

// insert writes rows with these ids, of which each has a key of its own in shard 1. Further columns
// and values may follow.
func (r *repeatedIDs) insert(keys []string, ids ...int64) {
	r.Helper()
	for i, id := range ids {
		exec(r.T, r.conn, "INSERT INTO repeated (id, message_id, target_broker, stream, type, ordering_key, payload) VALUES ($1, gen_random_uuid(), 'b', 's', 'T', $2, $3)",
			id, keys[i], []byte(fmt.Sprintf("%s of %d", keys[i], id)))
	}
}

func (r *repeatedIDs) number(text string) (n int) {
	r.Helper()
	require.NoError(r, r.conn.QueryRow(r.Context(), text).Scan(&n))
	return n
}

// claim claims, and says what of: the keys, in order.
func (r *repeatedIDs) claim(change ...func(*driver.Claim)) (driver.Batch, []string) {
	r.Helper()
	c := &driver.Claim{Broker: "b", Shard: 1, Limit: 100, Window: 100, Lease: time.Minute, Worker: "w", Shared: true, Wake: true}
	for _, f := range change {
		f(c)
	}
	exchanged, err := r.store.Exchange(r.Context(), nil, c)
	require.NoError(r, err)
	var keys []string
	for _, m := range exchanged.Batch.Messages {
		keys = append(keys, m.OrderingKey)
	}
	return exchanged.Batch, keys
}

func (r *repeatedIDs) complete(completion *driver.Completion) {
	r.Helper()
	exchanged, err := r.store.Exchange(r.Context(), completion, nil)
	require.NoError(r, err)
	require.Zero(r, exchanged.Completed.Lost)
}

// Of rows with one id a claim takes one, whichever way it goes, so that its outcome is about that
// row alone, and the others follow with the next claims.
func TestClaimOfRepeatedIDs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Claim){
		"ordered":   func(*driver.Claim) {},
		"unordered": func(c *driver.Claim) { c.Unordered = true },
	} {
		for _, suspected := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s, %d crashes", name, suspected), func(t *testing.T) {
				t.Parallel()
				r, keys := newRepeated(t), fourKeys()
				r.insert(keys, 1, 2, 2, 3)
				exec(t, r.conn, "UPDATE repeated SET crashes = $1", suspected)
				seen := map[string]int{}
				for range 8 {
					batch, took := r.claim(change)
					if len(took) == 0 {
						break
					}
					ids := map[int64]bool{}
					for _, m := range batch.Messages {
						require.False(t, ids[m.ID], "twice in one claim")
						ids[m.ID] = true
						seen[m.OrderingKey]++
					}
					before := r.number("SELECT count(*) FROM repeated WHERE status = 'published'")
					completion := &driver.Completion{Lease: batch.Lease}
					for _, m := range batch.Messages {
						completion.Published = append(completion.Published, driver.Delivered{ID: m.ID})
					}
					r.complete(completion)
					require.Equal(t, before+len(took), r.number("SELECT count(*) FROM repeated WHERE status = 'published'"), "of no other row")
				}
				assert.Equal(t, map[string]int{keys[0]: 1, keys[1]: 1, keys[2]: 1, keys[3]: 1}, seen)
				assert.Zero(t, r.number("SELECT count(*) FROM repeated WHERE finished_at IS NULL"))
			})
		}
	}
}

// A row that waits takes no row with the same id out of the way of claims.
func TestDeferralOfRepeatedIDs(t *testing.T) {
	t.Parallel()
	r, keys := newRepeated(t), fourKeys()
	r.insert(keys, 1, 2, 2, 3)
	exec(t, r.conn, "UPDATE repeated SET status = 'failed', attempts = 1, locked_until = now() + interval '1 hour' WHERE ordering_key = $1", keys[1])
	deferred, err := r.store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: 1, Window: 100})
	require.NoError(t, err)
	assert.Equal(t, 1, deferred)
	assert.Equal(t, 1, r.number("SELECT count(*) FROM repeated WHERE deferred"))
	assert.Zero(t, r.orphans())
	_, took := r.claim()
	assert.Equal(t, []string{keys[0], keys[2], keys[3]}, took)
}

// orphans are deferred rows that nothing brings back.
func (r *repeatedIDs) orphans() int {
	r.Helper()
	return r.number(`SELECT count(*) FROM repeated AS m WHERE deferred AND finished_at IS NULL AND NOT EXISTS (
		SELECT FROM repeated_key_blocks AS w WHERE w.target_broker = m.target_broker AND (w.block_message_id = m.message_id OR w.ordering_key = m.ordering_key))`)
}

// Followers of one id all come back, and a row with the id of its key's block waits for it.
func TestFollowersOfRepeatedIDs(t *testing.T) {
	t.Parallel()
	r, keys := newRepeated(t), fourKeys()
	same := slices.Repeat(keys[:1], 4)
	r.insert(same, 5, 5, 6, 6)
	exec(t, r.conn, "UPDATE repeated SET status = 'failed', attempts = 1, locked_until = now() + interval '1 hour' WHERE ctid = (SELECT min(ctid) FROM repeated)")
	deferred, err := r.store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: 1, Window: 100})
	require.NoError(t, err)
	require.Equal(t, 4, deferred)
	r.insert(keys[:1], 5) // after the deferral
	_, took := r.claim()
	require.Empty(t, took, "it waits for its key's block")
	deferred, err = r.store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: 1, Window: 100})
	require.NoError(t, err)
	require.Equal(t, 1, deferred)
	require.Zero(t, r.orphans())

	exec(t, r.conn, "UPDATE repeated SET locked_until = now() WHERE locked_until IS NOT NULL")
	exec(t, r.conn, "UPDATE repeated_key_blocks SET wake_at = now()")
	for range 10 {
		batch, _ := r.claim()
		completion := &driver.Completion{Lease: batch.Lease}
		for _, m := range batch.Messages {
			completion.Published = append(completion.Published, driver.Delivered{ID: m.ID})
		}
		r.complete(completion)
	}
	assert.Zero(t, r.number("SELECT count(*) FROM repeated WHERE finished_at IS NULL"))
	assert.Zero(t, r.number("SELECT count(*) FROM repeated_key_blocks"))
}

// An identity begins anew beside rows that wait, under a running relay. The relay delivers every row.
func TestIdentityBeginsAnew(t *testing.T) {
	t.Parallel()
	r := newRepeated(t)
	write := func(n int) {
		exec(t, r.conn, `INSERT INTO repeated (message_id, target_broker, stream, type, ordering_key, payload)
			SELECT gen_random_uuid(), 'b', 's', 'T', 'key-' || i % 37, convert_to(i::text, 'UTF8') FROM generate_series(1, $1) AS i`, n)
	}
	broker := memory.New()
	engine, err := relay.NewEngine(relay.EngineConfig{
		Stores: map[string]driver.Delivery{"d": r.store}, Brokers: map[string]relay.Target{"b": {Broker: broker, Policy: outbox.Policy{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond, BatchSize: 20}}},
	})
	require.NoError(t, err)
	write(300)
	// Some wait for a while, and are deferred.
	exec(t, r.conn, "UPDATE repeated SET status = 'failed', attempts = 1, locked_until = now() + interval '1 hour' WHERE id % 7 = 0")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	// The relay defers the rows that wait once they fill its window; how wide that is depends on what its claims have met.
	settled := func() bool {
		water := &r.store.water
		water.mu.Lock()
		water.look = map[string]time.Time{"b": time.Now()} // the next look is a full one
		water.mu.Unlock()
		for shard := range outbox.Shards {
			_, err := r.store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: shard, Window: 1000})
			require.NoError(t, err)
		}
		return r.number("SELECT count(*) FROM repeated WHERE finished_at IS NULL AND NOT deferred") == 0
	}
	require.Eventually(t, settled, time.Minute, 50*time.Millisecond)
	backwards := func() bool {
		found, err := r.store.Watch(t.Context())
		require.NoError(t, err)
		return slices.ContainsFunc(found, func(f admin.Finding) bool { return f.Topic == "identity" })
	}
	require.False(t, backwards())
	exec(t, r.conn, "ALTER TABLE repeated ALTER COLUMN id RESTART WITH 1")
	require.True(t, backwards())
	write(200)
	require.True(t, backwards())
	write(100)
	require.Eventually(t, settled, time.Minute, 50*time.Millisecond)
	require.Zero(t, r.orphans())
	exec(t, r.conn, "UPDATE repeated SET locked_until = NULL WHERE finished_at IS NULL AND status = 'failed'")
	exec(t, r.conn, "UPDATE repeated_key_blocks SET wake_at = now()")
	require.Eventually(t, func() bool { return r.number("SELECT count(*) FROM repeated WHERE finished_at IS NULL") == 0 }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	assert.Equal(t, 600, r.number("SELECT count(*) FROM repeated WHERE status = 'published'"))
	assert.Len(t, broker.Messages("s"), 600)
	exec(t, r.conn, "SELECT setval(pg_get_serial_sequence('repeated', 'id'), (SELECT max(id) FROM repeated))")
	assert.False(t, backwards())
}
