package integration_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The application has used up its connections; the relay in its process, which was given the same
// handle, has its own, and delivers.
func TestFault31ApplicationHasUsedUpItsPool(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	cfg, err := config.Parse([]byte("databases: {default: {driver: postgres}}\noutbox: {external_brokers: [], poll: {max: 200ms}}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	migrate(t, cfg, dsn)
	db, err := gorm.Open(postgres.Open(dsn), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	defer pool.Close()
	pool.SetMaxOpenConns(2)
	for range 2 {
		tx := db.Begin()
		require.NoError(t, tx.Exec("SELECT 1").Error)
		defer tx.Rollback()
	}
	require.Equal(t, 2, pool.Stats().InUse)

	broker := memory.New()
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithDB("default", db), fanout.WithBroker("default", broker), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	other, err := gorm.Open(postgres.Open(dsn), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	elsewhere, err := other.DB()
	require.NoError(t, err)
	defer elsewhere.Close()
	require.NoError(t, other.Exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload)
		SELECT gen_random_uuid(), 'default', 's', 'T', '' FROM generate_series(1, 500)`).Error)
	eventually(t, func() bool { return len(broker.Messages("s")) == 500 })
	assert.Equal(t, 2, pool.Stats().InUse, "still used up")
	stop()
	require.NoError(t, <-done)
	assert.EqualValues(t, 500, published(relay))
}
