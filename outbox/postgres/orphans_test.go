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

	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Followers that another transaction updates while their block is lifted come back with the others,
// whatever it has done to them, or stay behind a block: none is left deferred with nothing to wait for.
func TestFollowersThatAreUpdatedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, update := range map[string]string{
		"what is delivered": "UPDATE repeated SET payload = 'scrubbed' WHERE id = ANY($1)",
		"another column":    "UPDATE repeated SET tenant_id = 't' WHERE id = ANY($1)",
		"given up":          "UPDATE repeated SET status = 'abandoned', deferred = false, finished_at = now() WHERE id = ANY($1)",
	} {
		for _, followers := range []int{3, 700} {
			t.Run(fmt.Sprintf("%s, %d", name, followers), func(t *testing.T) {
				t.Parallel()
				r, keys := newRepeated(t), fourKeys()
				outside, err := pgx.Connect(t.Context(), r.conn.Config().ConnString())
				require.NoError(t, err)
				t.Cleanup(func() { _ = outside.Close(context.WithoutCancel(t.Context())) })
				exec(t, r.conn, `INSERT INTO repeated (id, message_id, target_broker, stream, type, ordering_key, payload)
					SELECT i, gen_random_uuid(), 'b', 's', 'T', $1, '' FROM generate_series(1, $2) AS i`, keys[0], followers+1)
				exec(t, r.conn, "UPDATE repeated SET status = 'failed', attempts = 1, locked_until = now() + interval '1 hour' WHERE id = 1")
				for deferred := 1; deferred > 0; {
					deferred, err = r.store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: 1, Window: 500})
					require.NoError(t, err)
				}
				require.Equal(t, followers+1, r.number("SELECT count(*) FROM repeated WHERE deferred"))
				exec(t, r.conn, "UPDATE repeated SET status = 'published', deferred = false, published_at = now(), finished_at = now(), locked_until = NULL WHERE id = 1")
				exec(t, r.conn, "UPDATE repeated_key_blocks SET wake_at = now()")

				exec(t, outside, "BEGIN")
				exec(t, outside, update, []int64{3, 4})
				lifted := make(chan driver.Batch, 1)
				go func() {
					batch, _ := r.claim()
					lifted <- batch
				}()
				require.Eventually(t, func() bool { // a claim does not wait for long, and a busy machine may look too late
					return len(lifted) > 0 || r.number("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())") > 0
				}, time.Minute, time.Millisecond)
				exec(t, outside, "COMMIT")
				last := int64(1)
				for batch, n := <-lifted, 0; n < 60; n++ {
					completion := &driver.Completion{Lease: batch.Lease}
					for _, m := range batch.Messages {
						require.Greater(t, m.ID, last, "in order")
						last = m.ID
						completion.Published = append(completion.Published, driver.Delivered{ID: m.ID})
					}
					r.complete(completion)
					require.Zero(t, r.orphans())
					batch, _ = r.claim()
				}
				assert.Zero(t, r.number("SELECT count(*) FROM repeated WHERE finished_at IS NULL"))
				assert.Zero(t, r.number("SELECT count(*) FROM repeated_key_blocks"))
			})
		}
	}
}

// A block is not removed while it has followers, whoever decided so.
func TestBlockWithFollowersStays(t *testing.T) {
	t.Parallel()
	r, keys := newRepeated(t), fourKeys()
	r.insert(slices.Repeat(keys[:1], 2), 1, 2)
	exec(t, r.conn, "UPDATE repeated SET status = 'failed', attempts = 1, locked_until = now() + interval '1 hour' WHERE id = 1")
	deferred, err := r.store.Defer(t.Context(), &driver.Claim{Broker: "b", Shard: 1, Window: 100})
	require.NoError(t, err)
	require.Equal(t, 2, deferred)
	for _, blocks := range []int{1, 1, 0} {
		lift := &driver.Lift{Broker: "b", Shard: 1, Version: int64(r.number("SELECT version FROM repeated_shards"))}
		lift.Drop = []driver.BlockState{{ID: 1, Key: keys[0], HasKey: true}}
		require.NoError(t, r.conn.QueryRow(t.Context(), "SELECT block_message_id FROM repeated_key_blocks").Scan(&lift.Drop[0].MessageID))
		require.NoError(t, thin{r.store}.Lift(t.Context(), lift))
		require.Equal(t, blocks, r.number("SELECT count(*) FROM repeated_key_blocks"))
		exec(t, r.conn, "DELETE FROM repeated WHERE id = (SELECT max(id) FROM repeated)") // the follower, and then the block's own row
	}
}
