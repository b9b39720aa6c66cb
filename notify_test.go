package fanout_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
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

// writer is an application's handle.
func writer(t *testing.T, dsn string, cfg *config.Config) *gorm.DB {
	t.Helper()
	events := envelope.NewCatalog("waking")
	envelope.Register[wakeUp](events)
	db, err := gorm.Open(postgres.Open(dsn), &gorm.Config{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))
	return db
}

func publish(t *testing.T, db *gorm.DB, n int) {
	t.Helper()
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, wakeUp{n}) }))
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
	store, err := fanout.OpenStore(t.Context(), cfg, "main")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Close())
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

	t.Run("of another process", func(t *testing.T) {
		db := writer(t, dsn, cfg)
		r, await := startRelay(t, cfg)
		require.Eventually(t, func() bool { return r.Stats()[0].Listener == relay.ListenerConnected }, 20*time.Second, time.Millisecond)
		for n := range 5 {
			publish(t, db, n)
			await(int64(n) + 1)
		}
		assert.NotEmpty(t, heard())
	})
	t.Run("of the same process", func(t *testing.T) {
		db := writer(t, dsn, cfg)
		r, await := startRelay(t, cfg, fanout.WithDB("main", db))
		require.Eventually(t, func() bool { return r.Stats()[0].Listener == relay.ListenerConnected }, 20*time.Second, time.Millisecond)
		for n := range 5 {
			publish(t, db, n)
			await(int64(n) + 1)
		}
		assert.Empty(t, heard())
	})
	t.Run("not at all", func(t *testing.T) {
		quiet := sparse(t, dsn, ", notify: false")
		r, _ := startRelay(t, quiet)
		assert.Equal(t, relay.ListenerOff, r.Stats()[0].Listener)
		publish(t, writer(t, dsn, quiet), 1)
		assert.Empty(t, heard())
	})
}
