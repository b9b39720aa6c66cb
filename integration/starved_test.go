package integration_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// The application has used up its connections; the relay in its process, which was given the same
// handle, has its own, and delivers.
func TestFault31ApplicationHasUsedUpItsPool(t *testing.T) {
	t.Parallel()
	onServers(t, testFault31ApplicationHasUsedUpItsPool)
}

func testFault31ApplicationHasUsedUpItsPool(t *testing.T, p *place) {
	t.Helper()
	cfg, err := config.Parse([]byte(p.bare()+"outbox: {external_brokers: [], poll: {max: 200ms}}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	p.migrate()
	db, err := gorm.Open(p.dial(), &gorm.Config{Logger: logger.Discard})
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
	rows := make([]outbox.Row, 500)
	for i := range rows {
		rows[i] = outbox.Row{MessageID: uuid.New(), TargetBroker: "default", Stream: "s", Type: "T"}
	}
	p.write(rows...)
	eventually(t, func() bool { return len(broker.Messages("s")) == 500 })
	assert.Equal(t, 2, pool.Stats().InUse, "still used up")
	stop()
	require.NoError(t, <-done)
	assert.EqualValues(t, 500, published(relay))
}
