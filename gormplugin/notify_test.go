package gormplugin_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// hearer is a relay's ear on the channel of a table of its own.
type hearer struct {
	t      *testing.T
	conn   *pgx.Conn
	db     *gorm.DB
	pool   *sql.DB
	plugin *gormplugin.Plugin
}

func newHearer(t *testing.T) *hearer {
	t.Helper()
	h, dsn := &hearer{t: t}, postgresTable(t)
	var err error
	h.db, err = gorm.Open(postgres.Open(dsn), &gorm.Config{})
	require.NoError(t, err)
	h.pool, err = h.db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.pool.Close() })
	createBusinessTable(t, h.pool)
	h.plugin = gormplugin.New(catalog(), outbox.Routing{External: []outbox.Route{{Broker: "partner"}}, Notify: true})
	require.NoError(t, h.db.Use(h.plugin))
	h.conn, err = pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.conn.Close(context.Background())) })
	_, err = h.conn.Exec(t.Context(), `LISTEN "fanout:outbox_messages"`)
	require.NoError(t, err)
	return h
}

// next is the next text that is heard.
func (h *hearer) next() string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	n, err := h.conn.WaitForNotification(ctx)
	require.NoError(h.t, err)
	return n.Payload
}

// nothing was said until now: what this says is the next that is heard.
func (h *hearer) nothing(why string) {
	h.t.Helper()
	_, err := h.conn.Exec(h.t.Context(), `NOTIFY "fanout:outbox_messages", 'end'`)
	require.NoError(h.t, err)
	require.Equal(h.t, "end", h.next(), why)
}

func (h *hearer) create(db *gorm.DB, id string) error {
	order := &commitOrder{ID: id}
	order.Raise(OrderPlaced{OrderID: id})
	return db.Create(order).Error
}

func (h *hearer) shards(aggregate string) (shards []int) {
	h.t.Helper()
	require.NoError(h.t, h.db.Table("outbox_messages").Where("aggregate_id = ?", aggregate).Pluck("shard", &shards).Error)
	require.NotEmpty(h.t, shards)
	return shards
}

// wakeUps are what an notification should say of all rows.
func (h *hearer) wakeUps() string {
	h.t.Helper()
	var rows []struct {
		TargetBroker string
		Shard        int
	}
	require.NoError(h.t, h.db.Table("outbox_messages").Order("target_broker").Find(&rows).Error)
	var wakeUps []wakeup.WakeUp
	for _, r := range rows {
		wakeUps = wakeup.Merge(wakeUps, wakeup.WakeUp{Broker: r.TargetBroker, Shards: wakeup.SetOf(r.Shard)})
	}
	return wakeup.Text(wakeUps)
}

// Other processes are told after the outermost commit, of what it has written; of a rollback they
// hear nothing.
func TestNotify(t *testing.T) {
	t.Parallel()
	h := newHearer(t)
	require.NoError(t, h.create(h.db, "1"))
	assert.Equal(t, h.wakeUps(), h.next())
	require.NoError(t, h.db.Exec("DELETE FROM outbox_messages").Error)

	require.NoError(t, h.db.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, tx.Transaction(func(nested *gorm.DB) error { return h.create(nested, "2") }))
		require.Error(t, tx.Transaction(func(nested *gorm.DB) error {
			require.NoError(t, h.create(nested, "3"))
			return errRefused
		}))
		tx.SavePoint("here")
		h.nothing("before the outermost commit")
		return nil
	}))
	assert.Equal(t, h.wakeUps(), h.next(), "of order 2 alone")

	require.ErrorIs(t, h.db.Transaction(func(tx *gorm.DB) error {
		require.NoError(t, h.create(tx, "4"))
		return errRefused
	}), errRefused)
	require.NoError(t, h.db.Create(&commitOrder{ID: "5"}).Error)
	h.nothing("of a rollback, and of a commit without events")

	require.NoError(t, gormplugin.Notify(h.db))
	assert.Equal(t, "1 default partner", h.next(), "of a transaction of the caller's own")
	require.NoError(t, h.db.Connection(func(conn *gorm.DB) error {
		return uow.Do(t.Context(), conn, func(u *uow.Unit) error { return h.create(u.DB, "6") })
	}))
	assert.NotEqual(t, "end", h.next(), "of one on a connection, by another one")

	served := true
	cancel := onCommit(h.db, func([]wakeup.WakeUp) bool { return served })
	require.NoError(t, h.create(h.db, "7"))
	seventh := h.shards("7")
	require.NoError(t, h.db.Exec("DELETE FROM outbox_messages").Error)
	served = false
	require.NoError(t, h.create(h.db, "8"))
	require.NotEqual(t, seventh, h.shards("8"))
	assert.Equal(t, h.wakeUps(), h.next(), "not of order 7, which a relay in this process delivers: of order 8, since that relay does not run")
	cancel()
}

// Fault 23: no commit fails, whatever becomes of the notifications: a pool of one connection is used
// up by the writer itself. That no commit waits is shown below, by a test's clock.
func TestFault23WritersAreNotSlowed(t *testing.T) {
	t.Parallel()
	h := newHearer(t)
	h.pool.SetMaxOpenConns(1)
	require.NoError(t, h.create(h.db, "1"))
	assert.NotEqual(t, "end", h.next())

	// Another writer takes the only connection before the notification gets it, and keeps it.
	for _, id := range []string{"2", "3", "4", "5"} {
		require.NoError(t, h.create(h.db, id))
	}
	held := h.db.Begin()
	require.NoError(t, held.Error)
	require.NoError(t, h.create(held, "6"))
	require.NoError(t, held.Rollback().Error)
}

// unreliable is a database on which notifications fail: their connection is dead, or silent.
type unreliable struct {
	discard

	silent bool
	tried  *atomic.Int64
}

func (u unreliable) Connect(context.Context) (driver.Conn, error) { return u, nil }

func (u unreliable) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if !strings.Contains(query, "pg_notify") {
		return u.discard.ExecContext(ctx, query, args)
	}
	u.tried.Add(1)
	if u.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, driver.ErrBadConn
}

func TestFault23NotificationsOnADeadConnection(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"dead": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var tried atomic.Int64
				pool := sql.OpenDB(unreliable{silent: silent, tried: &tried})
				defer pool.Close()
				db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool, WithoutReturning: true}), &gorm.Config{})
				require.NoError(t, err)
				var log strings.Builder
				require.NoError(t, db.Use(gormplugin.New(catalog(), outbox.Routing{External: []outbox.Route{{Broker: "partner"}}, Notify: true},
					gormplugin.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))))
				began := time.Now()
				for range 100 {
					order := &commitOrder{ID: "1"}
					order.Raise(OrderPlaced{OrderID: "1"})
					require.NoError(t, db.Create(order).Error)
				}
				assert.Equal(t, began, time.Now(), "no commit waits")
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, 1, strings.Count(log.String(), "relays not notified"))
				assert.Positive(t, tried.Load())
				assert.Less(t, tried.Load(), int64(10))
			})
		})
	}
}
