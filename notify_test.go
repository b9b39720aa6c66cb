package fanout_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	store "github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/uow"
)

type wakeUp struct{ Number int }

// sparse is a configuration under which polling finds nothing within the time of a test.
func sparse(t *testing.T, dsn, notify string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(fmt.Sprintf("databases: {main: {driver: postgres, dsn: '%s'%s}}\n"+
		"outbox: {poll: {min: 1h, max: 1h}}\nbrokers: {default: {type: memory}}\n", dsn, notify)), "fanout.yaml")
	require.NoError(t, err)
	return cfg
}

// application is one that writes events: with GORM, by database/sql, or by pgx.
type application struct {
	relay   fanout.Option // of a relay in its process
	publish func(t *testing.T, n int)
}

var applications = map[string]func(t *testing.T, dsn string, cfg *config.Config) application{
	"GORM": withGORM, "database/sql": withSQL, "pgx": withPgx,
}

func wakeUps() *envelope.Catalog {
	events := envelope.NewCatalog("waking")
	envelope.Register[wakeUp](events)
	return events
}

func withGORM(t *testing.T, dsn string, cfg *config.Config) application {
	t.Helper()
	db, err := gorm.Open(postgres.Open(dsn), &gorm.Config{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	require.NoError(t, db.Use(gormplugin.New(wakeUps(), cfg.Routing())))
	return application{fanout.WithDB("main", db), func(t *testing.T, n int) {
		t.Helper()
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, wakeUp{n}) }))
	}}
}

func withSQL(t *testing.T, dsn string, cfg *config.Config) application {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	w, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.Postgres, Events: wakeUps(), Routing: cfg.Routing(), Notify: db})
	require.NoError(t, err)
	return application{fanout.WithWriter("main", w), func(t *testing.T, n int) {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		written, err := w.Insert(t.Context(), tx, envelope.NewEvent(wakeUp{n}))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		written.Committed()
	}}
}

func withPgx(t *testing.T, dsn string, cfg *config.Config) application {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	w, err := outbox.NewWriter(outbox.WriterConfig{Dialect: outbox.Postgres, Events: wakeUps(), Routing: cfg.Routing(), Notify: db})
	require.NoError(t, err)
	return application{fanout.WithWriter("main", w), func(t *testing.T, n int) {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		written, err := store.Insert(t.Context(), tx, w, envelope.NewEvent(wakeUp{n}))
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		written.Committed()
	}}
}

// startRelay runs a relay until the test ends. await waits until a number of messages was
// published.
func startRelay(t *testing.T, cfg *config.Config, opts ...fanout.Option) (r *fanout.Relay, await func(published int64)) {
	t.Helper()
	r, err := fanout.Open(t.Context(), cfg, append(opts, fanout.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, r.Run(ctx)) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return r, func(published int64) {
		t.Helper()
		require.Eventually(t, func() bool { return r.Stats()[0].Published == published }, 20*time.Second, time.Millisecond)
	}
}

// A relay of another process is woken by NOTIFY, one of the same process in memory, and then nobody
// else is told.
//
//nolint:tparallel // one relay after the other
func TestRelaysAreWoken(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	cfg := sparse(t, dsn, "")
	require.NoError(t, fanout.Migrate(t.Context(), cfg))
	ear, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer ear.Close(context.Background())
	_, err = ear.Exec(t.Context(), `LISTEN "fanout:outbox_messages"`)
	require.NoError(t, err)
	// heard lists the notifications until now, but for the probes.
	heard := func() (texts []string) {
		_, err := ear.Exec(t.Context(), `NOTIFY "fanout:outbox_messages", 'end'`)
		require.NoError(t, err)
		for {
			n, err := ear.WaitForNotification(t.Context())
			require.NoError(t, err)
			if n.Payload == "end" {
				return texts
			}
			if !strings.HasPrefix(n.Payload, "1 ?") {
				texts = append(texts, n.Payload)
			}
		}
	}

	publish := func(t *testing.T, app application, r *fanout.Relay, await func(published int64)) {
		t.Helper()
		require.Eventually(t, func() bool { return r.Stats()[0].Listener == relay.ListenerConnected }, 20*time.Second, time.Millisecond)
		for n := range 5 {
			app.publish(t, n)
			await(int64(n) + 1)
		}
	}

	// A relay can deliver a row before its notification is sent. So those that are to hear none come first.
	for name, open := range applications {
		t.Run(name+", of the same process", func(t *testing.T) {
			app := open(t, dsn, cfg)
			r, await := startRelay(t, cfg, app.relay)
			publish(t, app, r, await)
			assert.Empty(t, heard())
		})
	}
	t.Run("not at all", func(t *testing.T) {
		quiet := sparse(t, dsn, ", notify: false")
		r, _ := startRelay(t, quiet)
		assert.Equal(t, relay.ListenerOff, r.Stats()[0].Listener)
		for _, open := range applications {
			open(t, dsn, quiet).publish(t, 1)
		}
		assert.Empty(t, heard())
	})
	_, err = ear.Exec(t.Context(), "DELETE FROM outbox_messages")
	require.NoError(t, err)
	for name, open := range applications {
		t.Run(name+", of another process", func(t *testing.T) {
			app := open(t, dsn, cfg)
			r, await := startRelay(t, cfg)
			publish(t, app, r, await)
			assert.NotEmpty(t, heard())
		})
	}
}
