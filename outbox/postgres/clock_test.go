package postgres

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// A worker whose clock is decades behind or ahead claims neither early nor twice nor late, and its
// leases and delays are those of the database's clock. In a bubble of synctest clocks begin in the
// year 2000, and go on as fast as a test likes.
func TestFault09ClockOfAWorkerIsWrong(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"behind": 0, "ahead": 60 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testenv.Postgres(t)
			right := openStore(t, dsn, "outbox")
			_, err := right.Migrate(t.Context())
			require.NoError(t, err)
			exec := func(text string) {
				t.Helper()
				_, err := right.pool.Exec(t.Context(), text)
				require.NoError(t, err)
			}
			read := func(text string) (ok bool) {
				t.Helper()
				require.NoError(t, right.pool.QueryRow(t.Context(), "SELECT "+text+" FROM outbox").Scan(&ok))
				return ok
			}
			exec("INSERT INTO outbox (message_id, target_broker, stream, type, ordering_key, payload) VALUES (gen_random_uuid(), 'b', 's', 'T', 'k', '')")
			var shard int
			require.NoError(t, right.pool.QueryRow(t.Context(), "SELECT shard FROM outbox").Scan(&shard))
			claim := &driver.Claim{Broker: "b", Shard: shard, Limit: 10, Window: 10, Lease: time.Minute, Worker: "w", Wake: true}
			take := func(store *Store) driver.Batch {
				t.Helper()
				exchanged, err := store.Exchange(t.Context(), nil, claim)
				require.NoError(t, err)
				return exchanged.Batch
			}
			// wrong runs a step of a worker whose clock is wrong.
			wrong := func(step func(store *Store)) {
				t.Helper()
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(ahead)
					store, err := Open(t.Context(), dsn, "outbox", WithMaxConns(1))
					require.NoError(t, err)
					defer store.Close()
					step(store)
				})
			}

			var lease driver.Lease
			wrong(func(store *Store) {
				require.Greater(t, time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Abs(), 10*365*24*time.Hour, "the clock is wrong")
				batch := take(store)
				require.Len(t, batch.Messages, 1)
				lease = batch.Lease
			})
			assert.True(t, read("locked_until BETWEEN now() AND now() + interval '1 minute'"), "a lease by the database's clock")
			assert.Empty(t, take(right).Messages, "claimed")
			exec("UPDATE outbox SET locked_until = now() + interval '1 second'")
			wrong(func(store *Store) {
				kept, err := store.Renew(t.Context(), lease)
				require.NoError(t, err)
				assert.Equal(t, 1, kept)
			})
			assert.True(t, read("locked_until BETWEEN now() + interval '30 seconds' AND now() + interval '1 minute'"), "renewed by the database's clock")

			exec("UPDATE outbox SET locked_until = now() - interval '1 second'")
			batch := take(right)
			require.Len(t, batch.Messages, 1, "the lease is over")
			wrong(func(store *Store) {
				assert.Empty(t, take(store).Messages, "not twice")
				exchanged, err := store.Exchange(t.Context(), &driver.Completion{Lease: lease, Published: []driver.Delivered{{ID: lease.FirstID}}}, nil)
				require.NoError(t, err)
				assert.Equal(t, 1, exchanged.Completed.Lost, "the late word changes nothing")
			})

			exec("UPDATE outbox SET locked_until = now() - interval '1 second'")
			wrong(func(store *Store) {
				batch := take(store)
				require.Len(t, batch.Messages, 1, "not late")
				_, err := store.Exchange(t.Context(), &driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{
					{ID: batch.Lease.FirstID, Status: outbox.StatusFailed, Spent: true, Delay: time.Minute},
				}}, nil)
				require.NoError(t, err)
				assert.Empty(t, take(store).Messages, "not early")
			})
			assert.True(t, read("locked_until BETWEEN now() AND now() + interval '1 minute'"), "a delay by the database's clock")
		})
	}
}
