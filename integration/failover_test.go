package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/uow"
)

// Counted is the n-th event of its key.
type Counted struct {
	Key string
	N   int
}

// Counter is an aggregate that counts its events.
type Counter struct {
	ID string
	N  int
	uow.Aggregate
}

// failover is a primary with a synchronous standby, applications and a relay that reach whichever
// is the primary, and the ledger of what was committed.
type failover struct {
	*testing.T

	servers *testservers.Replicated
	link    *switchboard // by which the standby follows the primary
	front   *switchboard // by which all reach the primary
	dsn     string
	broker  *memory.Broker
	db      *sql.DB // through the front

	mu    sync.Mutex
	acked map[string]int // by key
	total atomic.Int64
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{T: t, link: newSwitchboard(t, ""), acked: map[string]int{}, broker: memory.New()}
	var err error
	f.servers, err = testservers.StartReplicated(t.Context(), func(primary string) string {
		f.link.to(primary)
		return f.link.addr()
	})
	if errors.Is(err, testservers.ErrNoReplication) {
		t.Skipf("NOT TESTED: a failover to a standby: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.servers.Close()) })
	f.front = newSwitchboard(t, hostOf(t, f.servers.PrimaryURL))
	f.dsn = behind(t, f.servers.PrimaryURL, f.front.addr())
	f.db, err = sql.Open("pgx", f.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.db.Close() })
	store := f.store()
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	return f
}

func (f *failover) store() *postgres.Store {
	f.Helper()
	store, err := postgres.Open(f.Context(), f.dsn, "", postgres.WithMaxConns(6))
	require.NoError(f, err)
	f.Cleanup(func() { _ = store.Close() })
	return store
}

// one reads a number. While the servers change places it may have to ask again.
func (f *failover) one(query string, args ...any) (n int64) {
	f.Helper()
	var err error
	require.True(f, poll(f.Context(), func() bool {
		err = f.db.QueryRowContext(f.Context(), query, args...).Scan(&n)
		return err == nil
	}), "%v", err)
	return n
}

// write counts up the writer's keys until ctx ends, each count in a transaction of its own. Where
// the outcome of a commit is not known, the same aggregate is saved again, until it is: the index
// of message and broker refuses what is there already.
func (f *failover) write(ctx context.Context, db *gorm.DB, writer int) error {
	for n := 1; ctx.Err() == nil; n++ {
		for k := range 4 {
			counter := &Counter{ID: fmt.Sprintf("w%d-%d", writer, k), N: n}
			counter.Raise(Counted{counter.ID, n})
			var err error
			if !poll(f.Context(), func() bool {
				var refused *pgconn.PgError
				err = uow.Do(f.Context(), db, func(u *uow.Unit) error { return u.DB.Save(counter).Error })
				return err == nil || errors.As(err, &refused) && refused.ConstraintName == "outbox_messages_pkey"
			}) {
				return fmt.Errorf("write %d of %s: %w", n, counter.ID, err)
			}
			f.mu.Lock()
			f.acked[counter.ID] = n
			f.mu.Unlock()
			f.total.Add(1)
		}
	}
	return nil
}

// application is GORM with the plugin.
func (f *failover) application() *gorm.DB {
	f.Helper()
	events := envelope.NewCatalog("shop")
	envelope.Register[Counted](events)
	db, err := gorm.Open(gormpostgres.Open(f.dsn), &gorm.Config{Logger: logger.Discard})
	require.NoError(f, err)
	sqlDB, err := db.DB()
	require.NoError(f, err)
	f.Cleanup(func() { _ = sqlDB.Close() })
	require.NoError(f, db.AutoMigrate(&Counter{}))
	require.NoError(f, db.Use(gormplugin.New(events, outbox.Routing{InternalBroker: "default"})))
	return db
}

// abduct claims rows as a relay does that dies right afterwards.
func (f *failover) abduct() []driver.Message {
	f.Helper()
	var exchanged driver.Exchanged
	store := f.store()
	require.True(f, poll(f.Context(), func() bool {
		var err error
		exchanged, err = store.Exchange(f.Context(), nil, &driver.Claim{
			Broker: "default", Shard: 0, Limit: 5, Window: 500, Lease: 3 * time.Second, Worker: "gone", Shared: true,
		})
		return err == nil && len(exchanged.Batch.Messages) == 5
	}))
	return exchanged.Batch.Messages
}

// A relay that is pointed at a standby refuses to start, and so does fanout validate; a writer's
// transaction fails there.
func (f *failover) refusesTheStandby() {
	f.Helper()
	config := filepath.Join(f.TempDir(), "fanout.yaml")
	require.NoError(f, os.WriteFile(config, fmt.Appendf(nil, "databases: {default: {driver: postgres, dsn: %q}}\nbrokers: {default: {type: memory}}\n", f.servers.StandbyURL), 0o600))
	for _, command := range []string{"relay", "validate"} {
		refused := run(f.T, command, "--config", config)
		assert.Equal(f, 1, refused.code, command)
		assert.Contains(f, refused.stdout+refused.stderr, "the database is a read replica: point the relay at the primary", command)
	}
	standby, err := sql.Open("pgx", f.servers.StandbyURL)
	require.NoError(f, err)
	defer standby.Close()
	_, err = standby.ExecContext(f.Context(), "INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload) VALUES (gen_random_uuid(), 'default', 's', 'T', '')")
	require.ErrorContains(f, err, "read-only")
}

// The primary is killed under load and its synchronous standby promoted, a moment after the two had
// lost sight of each other: by then messages had been sent whose outcomes never reached the standby.
// Nothing that was committed is lost, each key keeps its order, ids are not used again, and claimed
// rows come back.
func TestFailover(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.refusesTheStandby()
	db := f.application()
	const bulk = 2000 // a backlog, so that the relay claims all the time
	_, err := f.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'default', 'bulk', 'T', 'b' || n % 50, convert_to(n::text, 'UTF8') FROM generate_series(1, $1::int) AS n`, bulk)
	require.NoError(t, err)
	held := f.abduct()

	f.broker.Fail = func(brokers.Message) error { <-time.After(time.Millisecond); return nil } // a slow broker
	policy := shortLease()
	policy.BatchSize, policy.Lease = 50, 3*time.Second
	engine, err := relay.NewEngine(relay.EngineConfig{
		Stores:  map[string]driver.Delivery{"default": f.store()},
		Brokers: map[string]relay.Target{"default": {Broker: f.broker, Policy: policy}}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	relaying, stopRelay := context.WithCancel(t.Context())
	writing, stopWriting := context.WithCancel(t.Context())
	var delivering, writers errgroup.Group
	delivering.Go(func() error { return engine.Run(relaying) })
	for writer := range 3 {
		writers.Go(func() error { return f.write(writing, db, writer) })
	}
	require.True(t, poll(t.Context(), func() bool { return f.total.Load() >= 100 && len(f.broker.Messages("bulk")) > 200 }))

	f.link.to("")
	const published = "SELECT count(*) FROM outbox_messages WHERE status = 'published'"
	before := f.one(published)
	require.True(t, poll(t.Context(), func() bool { return f.one(published) > before+int64(policy.BatchSize) }))
	var heard int64 // of outcomes, by the standby
	standby, err := sql.Open("pgx", f.servers.StandbyURL)
	require.NoError(t, err)
	require.NoError(t, standby.QueryRowContext(t.Context(), published).Scan(&heard))
	require.NoError(t, standby.Close())
	assert.Less(t, heard, f.one(published))
	highest := f.one("SELECT max(id) FROM outbox_messages")
	require.NoError(t, f.servers.KillPrimary())
	f.front.to("")
	committed := f.total.Load()
	began := time.Now()
	require.NoError(t, f.servers.Promote(t.Context()))
	f.front.to(hostOf(t, f.servers.StandbyURL))
	recovered := f.one("SELECT count(*) FROM outbox_messages WHERE target_broker = 'default'")
	require.True(t, poll(t.Context(), func() bool { return f.total.Load() >= committed+100 }))
	t.Logf("%d messages were committed before; the standby was the primary, with %d rows, and writers went on within %s",
		committed+bulk, recovered, time.Since(began).Round(10*time.Millisecond))
	assert.GreaterOrEqual(t, recovered, committed+bulk)
	stopWriting()
	require.NoError(t, writers.Wait())
	require.True(t, poll(t.Context(), func() bool { return f.one("SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL") == 0 }))
	stopRelay()
	require.NoError(t, delivering.Wait())

	f.checkLedger(bulk)
	fresh := f.one("SELECT min(id) FROM outbox_messages WHERE created_at > $1", began)
	assert.Greater(t, fresh, highest, "ids go on above those of the old primary")
	assert.Equal(t, f.one("SELECT count(*) FROM outbox_messages"), f.one("SELECT count(DISTINCT id) FROM outbox_messages"))
	for _, m := range held {
		assert.EqualValues(t, 1, f.one("SELECT count(*) FROM outbox_messages WHERE message_id = $1 AND status = 'published' AND attempts = 1 AND crashes = 1", m.MessageID), "it came back when its lease had ended")
	}
	assert.Zero(t, f.one("SELECT count(*) FROM outbox_messages WHERE status <> 'published'"))
}

// checkLedger compares what was committed with what arrived: all of it, and of each key the first
// arrivals in order.
func (f *failover) checkLedger(bulk int) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, second, ids := map[string]int{}, 0, map[string]bool{}
	for _, m := range f.broker.Messages("shop::counter") {
		message, err := envelope.DecodeInternal(m.Payload)
		require.NoError(f, err)
		counted, err := envelope.DataAs[Counted](message.Data)
		require.NoError(f, err)
		require.LessOrEqual(f, counted.N, seen[counted.Key]+1, "order of %s", counted.Key)
		seen[counted.Key] = max(seen[counted.Key], counted.N)
		if ids[m.ID] {
			second++
		}
		ids[m.ID] = true
	}
	assert.Equal(f, f.acked, seen)
	last, again, different := map[string]int{}, 0, map[string]bool{}
	for _, m := range f.broker.Messages("bulk") {
		n := 0
		_, err := fmt.Sscan(string(m.Payload), &n)
		require.NoError(f, err)
		if different[m.ID] {
			again++
			continue
		}
		different[m.ID] = true
		require.Greater(f, n, last[m.OrderingKey], "order of %s", m.OrderingKey)
		last[m.OrderingKey] = n
	}
	assert.Len(f, different, bulk)
	f.Logf("%d messages of aggregates, %d second copies; %d of the backlog, %d second copies", len(ids), second, len(different), again)
}
