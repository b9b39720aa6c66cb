package integration_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// Eight sessions update rows of the outbox in whatever order, and meet each other and four relays in deadlocks, while
// sessions of all of them are killed. Every message arrives, for the first time in the order of its key, and none is
// charged for it.
func TestDeadlocksAndKilledSessions(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	const messages, kills, writers, relays = 1500, 20, 8, 4
	for driver, words := range map[outbox.Dialect]struct{ name, victim, kill string }{
		outbox.Postgres: {"pgx", "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1", "SELECT pg_terminate_backend(%d)"},
		outbox.MySQL:    {"mysql", "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY rand() LIMIT 1", "KILL %d"},
	} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			b := newBench(newPlace(t, driver))
			b.db.SetMaxOpenConns(1) // and no victim
			b.configure(fmt.Sprintf("outbox: {batch_size: 10, external_brokers: []}\nbrokers:\n  default: {type: redis, url: %q}\n", testenv.Redis(t)))
			require.Zero(t, b.run("migrate").code)
			b.insert(messages)

			others, err := sql.Open(words.name, b.dsn)
			require.NoError(t, err)
			defer others.Close()
			var (
				group         sync.WaitGroup
				done          atomic.Bool
				updated, lost atomic.Int64
			)
			seed := uint64(testenv.Seed(t))
			for writer := range writers {
				random := rand.New(rand.NewPCG(seed, uint64(writer)))
				group.Go(func() {
					for !done.Load() {
						if update(t, others, random.Perm(messages)[:40]) == nil {
							updated.Add(1)
						} else {
							lost.Add(1)
						}
					}
				})
			}
			processes := make([]*relayProcess, relays)
			for i := range processes {
				processes[i] = b.relay()
			}
			for kill := 1; kill <= kills; kill++ {
				eventually(t, func() bool { return b.count("status = 'published'") >= messages*kill/(kills+1) })
				var id int64
				require.NoError(t, b.db.QueryRowContext(t.Context(), words.victim).Scan(&id))
				_, _ = b.db.ExecContext(t.Context(), fmt.Sprintf(words.kill, id)) // it may have ended by itself
			}
			eventually(t, func() bool { return b.count("status = 'published'") == messages })
			done.Store(true)
			group.Wait()
			for _, r := range processes {
				code, _ := r.stop()
				assert.Zero(t, code)
				assert.NotContains(t, r.log.String(), "panic")
			}
			t.Logf("%d transactions of others, %d that the server broke off; %d copies", updated.Load(), lost.Load(), b.arrived()-messages)
			b.checkFirsts(messages)
			assert.Equal(t, messages, b.count("attempts <= 1"), "a killed session is no attempt")
		})
	}
}

// update touches rows in this order, in one transaction.
func update(t *testing.T, db *sql.DB, rows []int) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, n := range rows {
		if _, err := tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE outbox_messages SET tenant_id = 'touched' WHERE id = %d", n+1)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// checkFirsts is [bench.checkOrder] where copies may come.
func (b *bench) checkFirsts(want int) {
	b.Helper()
	entries, err := b.redis.XRange(b.Context(), b.stream, "-", "+").Result()
	require.NoError(b, err)
	last, seen := map[int]int{}, map[any]bool{}
	for _, entry := range entries {
		if seen[entry.Values["id"]] {
			continue
		}
		seen[entry.Values["id"]] = true
		var payload struct{ Key, N int }
		data, _ := entry.Values["data"].(string)
		require.NoError(b, json.Unmarshal([]byte(data), &payload))
		require.Greater(b, payload.N, last[payload.Key], "order of key %d", payload.Key)
		last[payload.Key] = payload.N
	}
	assert.Len(b, seen, want)
}
