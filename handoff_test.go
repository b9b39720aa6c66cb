package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/uow"
)

// handing is an application whose relay takes rows by hand-off.
type handing struct {
	*testing.T

	db    *gorm.DB
	relay *fanout.Relay
	inner *memory.Broker
}

// newHanding opens it on a migrated database, with polls so seldom that what is delivered was told
// or handed off.
func newHanding(t *testing.T, driver, dsn string, dialector gorm.Dialector) *handing {
	t.Helper()
	h := &handing{T: t, inner: memory.New()}
	cfg, err := config.Parse(fmt.Appendf(nil, `
databases: {default: {driver: %s, dsn: %q}}
outbox: {external_brokers: [partner], hand_off: true, batch_size: 20, poll: {min: 1m, max: 1m}}
brokers: {default: {type: memory}, partner: {type: memory}}
`, driver, dsn), "fanout.yaml")
	require.NoError(t, err)
	h.db, err = gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := h.db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	require.NoError(t, h.db.AutoMigrate(&Order{}))
	store, err := fanout.OpenStore(t.Context(), cfg, "default")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Close())
	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published())
	envelope.Register[StockReserved](events)
	require.NoError(t, h.db.Use(gormplugin.New(events, cfg.Routing())))

	h.relay, err = fanout.Open(t.Context(), cfg, fanout.WithDB("default", h.db), fanout.WithBroker("default", h.inner), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- h.relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})
	h.eventually(func() bool { // the first looks, and the claims from all shards
		require.NoError(t, h.place("first"))
		return h.sent("default") > 0 && h.sent("partner") > 0
	})
	h.eventually(func() bool { return h.open() == 0 })
	return h
}

func (h *handing) eventually(condition func() bool) {
	h.Helper()
	require.Eventually(h, condition, 20*time.Second, 5*time.Millisecond)
}

func (h *handing) stats(broker string) relay.Stats {
	for _, stats := range h.relay.Stats() {
		if stats.Broker == broker {
			return stats
		}
	}
	return relay.Stats{}
}

func (h *handing) sent(broker string) int64 { return h.stats(broker).HandOff.Sent }

func (h *handing) open() (n int64) {
	h.Helper()
	require.NoError(h, h.db.Table(outbox.DefaultTable).Where("finished_at IS NULL").Count(&n).Error)
	return n
}

// place saves an order that has raised an event, and then does more in the same transaction.
func (h *handing) place(id string, more ...func(tx *gorm.DB) error) error {
	return h.db.Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: id}
		order.Raise(OrderPlaced{OrderID: id})
		if err := tx.Save(order).Error; err != nil {
			return err
		}
		for _, f := range more {
			if err := f(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// What GORM commits goes to both brokers without a claim; what it does not commit goes nowhere, and
// takes no room.
func TestHandOff(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) *handing{
		"sqlite": func(t *testing.T) *handing {
			dsn := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)&_txlock=immediate"
			return newHanding(t, "sqlite", dsn, sqlite.Open(dsn))
		},
		"postgres": func(t *testing.T) *handing {
			dsn := testenv.Postgres(t)
			return newHanding(t, "postgres", dsn, postgres.Open(dsn))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			before, claimed := h.sent("partner"), h.stats("partner").Claimed
			delivered := len(h.inner.Messages("ordering::order"))
			for n := range 20 {
				require.NoError(t, h.place(fmt.Sprint("order-", n)))
				h.eventually(func() bool { return h.open() == 0 })
			}
			assert.Equal(t, before+20, h.sent("partner"))
			assert.Equal(t, claimed, h.stats("partner").Claimed, "nothing was claimed")
			assert.Len(t, h.inner.Messages("ordering::order"), delivered+20)

			// No copies of what was not committed.
			failed := errors.New("failed")
			fail := func(*gorm.DB) error { return failed }
			require.ErrorIs(t, h.place("rolled back", fail), failed)
			require.NoError(t, h.place("kept", func(tx *gorm.DB) error {
				nested := tx.Transaction(func(tx *gorm.DB) error {
					order := &Order{ID: "savepoint"}
					order.Raise(OrderPlaced{OrderID: "savepoint"})
					require.NoError(t, tx.Save(order).Error)
					return failed
				})
				require.ErrorIs(t, nested, failed)
				return uow.Publish(tx, StockReserved{SKU: "x"})
			}))
			require.Panics(t, func() { _ = h.place("panic", func(*gorm.DB) error { panic("at the disco") }) })
			ctx, cancel := context.WithCancel(t.Context())
			require.Error(t, h.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				order := &Order{ID: "cancelled"}
				order.Raise(OrderPlaced{OrderID: "cancelled"})
				require.NoError(t, tx.Save(order).Error)
				cancel()
				return nil
			}))
			if name == "postgres" { // which finds out when it commits: the rows had their place by then
				require.NoError(t, h.db.Exec("CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)").Error)
				for n := range 3 {
					require.ErrorContains(t, h.place(fmt.Sprint("failed commit ", n), func(tx *gorm.DB) error { return tx.Exec("INSERT INTO once VALUES (1), (1)").Error }), "once")
				}
			}
			h.eventually(func() bool { return h.open() == 0 })
			for _, m := range h.inner.Messages("ordering::order") {
				assert.Regexp(t, "order-[0-9]+|first|kept", string(m.Payload))
			}
			for _, broker := range []string{"default", "partner"} {
				stats := h.stats(broker)
				assert.Zero(t, stats.HandOff.Gone+stats.HandOff.Full, broker)
				assert.Equal(t, stats.Published, h.published(broker), broker)
			}
			for n := range 60 { // more than a queue holds, had any place been lost
				require.NoError(t, h.place(fmt.Sprint("order-more-", n)))
				if n%10 == 9 { // SQLite's lock is not a fair one
					h.eventually(func() bool { return h.open() == 0 })
				}
			}
			for _, broker := range []string{"default", "partner"} {
				stats := h.stats(broker)
				assert.Zero(t, stats.HandOff.Full, broker)
				assert.Equal(t, stats.Published, h.published(broker), broker)
			}
		})
	}
}

// published counts the rows of a broker that were published.
func (h *handing) published(broker string) (n int64) {
	h.Helper()
	require.NoError(h, h.db.Table(outbox.DefaultTable).Where("status = 'published' AND target_broker = ?", broker).Count(&n).Error)
	return n
}
